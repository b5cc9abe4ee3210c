"""Applications on top of the library: raw texts, images or vectors in, decisions out."""

from polyshot.app.advice import Suspect, next_to_label, suspects
from polyshot.app.answers import Answer, Levels
from polyshot.app.classification import Classification, classify
from polyshot.app.item_classifier import ItemClassifier
from polyshot.app.items import Items
from polyshot.app.outputs import sort_into, write_answers
from polyshot.app.page import write_page
from polyshot.app.sources import Columns, read_labelled, read_queries, read_table

__all__ = [
    "Answer",
    "Classification",
    "Columns",
    "ItemClassifier",
    "Items",
    "Levels",
    "Suspect",
    "classify",
    "next_to_label",
    "read_labelled",
    "read_queries",
    "read_table",
    "sort_into",
    "suspects",
    "write_answers",
    "write_page",
]
