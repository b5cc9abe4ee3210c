"""A model as a web service: JSON over HTTP, described by OpenAPI (`polyshot serve`)."""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from polyshot.app.answers import Answer, Levels
from polyshot.app.guard import Guard, read_json_body, refused
from polyshot.app.item_classifier import ItemClassifier
from polyshot.app.items import Items
from polyshot.app.service_schema import LARGEST_NUMBER, LONGEST_TEXT, describe, openapi
from polyshot.errors import InputError, PolyshotError

_PATIENCE = 30.0  # seconds within which a client must have sent its request


@dataclass(frozen=True)
class Limits:
    """What a service takes.

    Attributes
    ----------
    n_bytes : int
        Largest body of a request.
    n_items : int
        Most items of a batch.
    n_requests : int
        Most requests that are read, waiting or being answered; further ones are refused with 503.
    """

    n_bytes: int = 2**24
    n_items: int = 256
    n_requests: int = 128

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")


def make_service(
    classifier: ItemClassifier,
    levels: Levels | None = None,
    limits: Limits | None = None,
    *,
    hosts: Collection[str] = ("localhost", "127.0.0.1", "::1"),
    token: str | None = None,
) -> Starlette:
    """Make the ASGI application that answers with a model.

    Parameters
    ----------
    classifier : ItemClassifier
    levels : Levels, optional
        How sure the answers have to be.
    limits : Limits, optional
    hosts : collection of str
        The names and addresses by which the service may be called, without ports; "*" stands for all.
    token : str, optional
        What clients must send as `Authorization: Bearer TOKEN`, except to /health.

    Returns
    -------
    Starlette
        For uvicorn or any other ASGI server.
    """
    service = _Service(classifier, levels or Levels(), limits or Limits())
    description = describe(classifier, service.levels)
    document = openapi(classifier, service.levels, service.limits.n_items, with_token=token is not None)
    app = Starlette(
        routes=[
            Route("/health", _constant({"status": "ok"})),
            Route("/model", _constant(description)),
            Route("/openapi.json", _constant(document)),
            Route("/classify", service.one, methods=["POST"]),
            Route("/classify/batch", service.batch, methods=["POST"]),
        ],
        exception_handlers={HTTPException: refused},
    )
    app.add_middleware(Guard, hosts=hosts, token=token, open_paths=["/health"])
    return app


class _Service:
    """Reads requests, lets the model answer them one after the other in a thread, and keeps count."""

    def __init__(self, classifier: ItemClassifier, levels: Levels, limits: Limits) -> None:
        self.classifier, self.levels, self.limits = classifier, levels, limits
        self.n_requests = 0
        self.labels = classifier.labels
        self.one_at_a_time = anyio.CapacityLimiter(1)  # the model itself uses the cores there are

    async def one(self, request: Request) -> Response:
        """Answer about {"item": ...}."""
        return await self._answered(request, "item", lambda item: [item], lambda answers: answers[0])

    async def batch(self, request: Request) -> Response:
        """Answer about {"items": [...]}."""
        return await self._answered(request, "items", self._checked_batch, lambda answers: {"answers": answers})

    async def _answered(
        self,
        request: Request,
        field: str,
        as_list: Callable[[Any], list[Any]],
        result: Callable[[list[dict[str, Any]]], Any],
    ) -> Response:
        if self.n_requests >= self.limits.n_requests:
            raise HTTPException(503, "too many requests at the same time; try again", {"Retry-After": "1"})
        self.n_requests += 1
        try:
            content = _parsed(await self._body(request))
            if not isinstance(content, dict) or set(content) != {field}:
                raise HTTPException(422, f'the body must be an object with the field "{field}" and no other')
            items = as_list(content[field])
            answers = await anyio.to_thread.run_sync(self._answer, items, limiter=self.one_at_a_time)
        finally:
            self.n_requests -= 1
        return JSONResponse(result(answers), headers={"Cache-Control": "no-store"})

    async def _body(self, request: Request) -> bytes:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await read_json_body(request, self.limits.n_bytes)
        except TimeoutError:
            raise HTTPException(408, f"the request was not complete after {_PATIENCE:g} seconds") from None

    def _checked_batch(self, items: Any) -> list[Any]:
        if not isinstance(items, list) or not 1 <= len(items) <= self.limits.n_items:
            raise HTTPException(422, f"items must be a list of 1 to {self.limits.n_items} items")
        return items

    def _answer(self, items: list[Any]) -> list[dict[str, Any]]:
        """Answers about all items, or one refusal that names every item that cannot be used."""
        read, failures = [], {}
        for row, item in enumerate(items):
            try:
                read.append(self._read(item))
            except ValueError as error:
                failures[row] = str(error)
        if not failures:
            queries = Items.of(self.classifier.kind, read)
            try:
                answers, failures = self.classifier.answer(queries, self.levels, cache=None)
            except PolyshotError as error:
                raise HTTPException(422, str(error)) from error
        if failures:
            reasons = "; ".join(f"item {row}: {reason}" for row, reason in sorted(failures.items()))
            raise HTTPException(422, reasons)
        return [self._as_json(answer) for answer in answers]

    def _read(self, item: Any) -> Any:
        """An item as the model takes it; a ValueError says what is wrong."""
        if self.classifier.kind == "vectors":
            return self._vector(item)
        if not isinstance(item, str):
            raise ValueError("must be a string" + (" in base64" if self.classifier.kind == "images" else ""))
        if self.classifier.kind == "images":
            try:
                return base64.b64decode(item, validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("must be the bytes of an image file in base64") from None
        if len(item) > LONGEST_TEXT:
            raise ValueError(f"has {len(item):,} characters; at most {LONGEST_TEXT:,} are taken")
        if any("\ud800" <= character <= "\udfff" for character in item):
            raise ValueError("holds half of a surrogate pair, which is no character")
        return item

    def _vector(self, item: Any) -> Any:
        size = self.classifier.model.n_features_in_
        if not isinstance(item, list) or len(item) != size or not set(map(type, item)) <= {int, float}:
            raise ValueError(f"must be a list of {size} numbers")
        if min(item) < -LARGEST_NUMBER or max(item) > LARGEST_NUMBER:
            raise ValueError(f"holds a number beyond {LARGEST_NUMBER:g}")
        return list(map(float, item))

    def _as_json(self, answer: Answer) -> dict[str, Any]:
        classifier = self.classifier
        return {
            "predicted": answer.predicted,
            "probability": answer.probability,
            "action": answer.action,
            "probabilities": dict(zip(classifier.classes, answer.probabilities, strict=True)),
            "prediction_set": answer.prediction_set,
            "outlier_p_value": answer.outlier_p_value,
            "nearest": [{"label": self.labels[k], "example": classifier.described(k)} for k in answer.nearest],
        }


def _constant(content: Any) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return JSONResponse(content)

    return answer


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON ({error})") from error


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")
