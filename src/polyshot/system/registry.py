"""Named things of one kind: those of this package, of installed packages, and of a user's own module.

METHODS.register("toy", Toy)          # in a module that `--plugin my_module` names

[project.entry-points."polyshot.methods"]
toy = "my_package.toy:Toy"            # in the pyproject.toml of an installed package
"""

import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from polyshot.errors import InputError

T = TypeVar("T")
PLUGINS: list[str] = []  # modules that `import_plugin` imported, for commands that start other commands


class Registry(Mapping[str, T], Generic[T]):
    """Things by name, in the order in which they were added; `find` explains an unknown name.

    Parameters
    ----------
    kind : str
        What one of them is called in messages, such as "method".
    items : mapping
        Those of this package.
    group : str, optional
        The entry points under which installed packages offer more; each is imported when it is first used.
    """

    def __init__(self, kind: str, items: Mapping[str, T], group: str | None = None) -> None:
        self.kind = kind
        self._items = dict(items)
        self._group = group
        self._offered: dict[str, EntryPoint] | None = None

    def register(self, name: str, item: T) -> T:
        """Add an item; the name of another one is refused."""
        if self._items.get(name, item) is not item:
            raise InputError(f"there is already a {self.kind} called {name!r}; register yours under another name")
        self._items[name] = item
        return item

    def unregister(self, name: str) -> None:
        """Remove an item that `register` added."""
        self._items.pop(name, None)

    def find(self, name: str) -> T:
        """The item of that name; an unknown name is an InputError that lists the others."""
        if name not in self:
            raise InputError(f"unknown {self.kind} {name!r}; choose from {', '.join(self)}")
        return self[name]

    def __getitem__(self, name: str) -> T:
        if name not in self._items and name in self._entry_points:
            point = self._entry_points[name]
            try:
                self._items[name] = point.load()
            except Exception as error:
                raise InputError(
                    f"the {self.kind} {name!r} of the entry point {point.value} cannot be imported: {error}"
                ) from error
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._items, *self._entry_points]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def _entry_points(self) -> dict[str, EntryPoint]:
        if self._offered is None:
            points = entry_points(group=self._group) if self._group else ()
            self._offered = {point.name: point for point in points}
        return self._offered


def import_plugin(module: str) -> None:
    """Import a user's module, which registers what it adds."""
    try:
        importlib.import_module(module)
        PLUGINS.append(module)
    except Exception as error:
        raise InputError(
            f"the plugin {module!r} cannot be imported ({type(error).__name__}: {error}); give the name of a module "
            "that Python finds from here, such as my_methods for my_methods.py in this folder"
        ) from error
