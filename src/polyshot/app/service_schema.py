"""What a service says about itself: its model, and the OpenAPI document that clients and tests read."""

from typing import Any

import polyshot
from polyshot.app.answers import Levels
from polyshot.app.item_classifier import ItemClassifier

LONGEST_TEXT = 100_000  # characters
LARGEST_NUMBER = 1e30  # of a vector; its square must not overflow
_REFUSALS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    408: "The request was not complete in time.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    421: "The server is not called by this name.",
    422: "An item cannot be used; the answer says which, and why.",
    503: "Too many requests at the same time; try again.",
}
_OF_EVERY_REQUEST = (403, 421)
_OF_A_TOKEN = (401,)


def describe(classifier: ItemClassifier, levels: Levels) -> dict[str, Any]:
    """What the model takes and what it answers."""
    takes = {"text": "text", "images": "image", "vectors": "vector"}[classifier.kind]
    return {
        "item": takes,
        "n_features": classifier.model.n_features_in_ if classifier.kind == "vectors" else None,
        "encoder": classifier.encoder,
        "classes": list(classifier.classes),
        "n_examples": len(classifier.examples),
        "confidence": levels.confidence,
        "false_alarm": levels.false_alarm,
        "polyshot": polyshot.__version__,
    }


def openapi(classifier: ItemClassifier, levels: Levels, n_items: int, *, with_token: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document of a model's service."""
    schemas = {
        "Item": _item(classifier),
        "Answer": _answer(classifier, levels),
        "Error": _object({"error": {"type": "string"}}),
        "One": _object({"item": _ref("Item")}),
        "Batch": _object({"items": _list(_ref("Item"), 1, n_items)}),
        "Answers": _object({"answers": _list(_ref("Answer"), 1, n_items)}),
    }
    classify = {"post": _operation("Classify one item.", "classify", "Answer", with_token, "One")}
    batch = {"post": _operation("Classify many items.", "classify_batch", "Answers", with_token, "Batch")}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "polyshot serve",
            "version": polyshot.__version__,
            "description": f"Classifies into {', '.join(classifier.classes)}.",
        },
        "paths": {
            "/classify": classify,
            "/classify/batch": batch,
            "/model": {"get": _operation("What the model takes and answers.", "model", None, with_token)},
            "/health": {"get": _operation("Whether the server answers.", "health", None, False)},
        },
        "components": {"schemas": schemas},
    }
    if with_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def _item(classifier: ItemClassifier) -> dict[str, Any]:
    if classifier.kind == "vectors":
        size = classifier.model.n_features_in_
        number = {"type": "number", "minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER}
        return {**_list(number, size, size), "description": "A vector."}
    if classifier.kind == "images":
        return {
            "type": "string",
            "contentEncoding": "base64",
            "description": "The bytes of an image file (PNG, JPEG, WebP, ...) in base64.",
        }
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": LONGEST_TEXT,
        "pattern": r"\S",
        "description": "A text.",
    }


def _answer(classifier: ItemClassifier, levels: Levels) -> dict[str, Any]:
    name = {"type": "string", "enum": list(classifier.classes)}
    share = {"type": "number", "minimum": 0, "maximum": 1}
    possible = {"type": ["array", "null"], "items": name}
    return _object(
        {
            "predicted": {**name, "description": "The most probable class."},
            "probability": {**share, "description": "Its probability."},
            "action": {
                "type": "string",
                "enum": ["accept", "ask", "none of these"],
                "description": "Accept the answer, ask a person, or take the item for none of the classes.",
            },
            "probabilities": _object({c: share for c in classifier.classes}),
            "prediction_set": {
                **possible,
                "description": f"Contains the true class with probability {levels.confidence:g} or more."
                if levels.confidence is not None
                else "Not computed by this server.",
            },
            "outlier_p_value": {
                "type": ["number", "null"],
                "description": "Small if the item belongs to none of the classes."
                if levels.false_alarm is not None
                else "Not computed by this server.",
            },
            "nearest": {
                **_list(_object({"label": name, "example": {"type": "string"}}), 0, levels.n_reasons),
                "description": "The most similar examples, the nearest first.",
            },
        }
    )


def _operation(
    summary: str, name: str, answer: str | None, with_token: bool, body: str | None = None
) -> dict[str, Any]:
    """An operation; without a `body` it takes none, and without an `answer` it returns some object."""
    refusals = _REFUSALS if body else {code: _REFUSALS[code] for code in (*_OF_EVERY_REQUEST, *_OF_A_TOKEN)}
    refusals = {code: reason for code, reason in refusals.items() if with_token or code not in _OF_A_TOKEN}
    found: dict[str, Any] = {
        "summary": summary,
        "operationId": name,
        "responses": {
            "200": _json("The answer.", _ref(answer) if answer else {"type": "object"}),
            **{str(code): _json(reason, _ref("Error")) for code, reason in refusals.items()},
        },
    }
    if body:
        found["requestBody"] = {"required": True, **_json("", _ref(body))}
    if with_token:
        found["security"] = [{"token": []}]
    return found


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: Any, fewest: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": fewest, "maxItems": most}
