"""The exceptions that polyshot raises on bad input; each says what was wrong and what would be right."""


class PolyshotError(Exception):
    """Base of every error of polyshot."""


class InputError(PolyshotError, ValueError):
    """An argument has a wrong shape, type, range or name, or holds NaN or infinity."""


class InputTypeError(InputError, TypeError):
    """An argument of a type that cannot be used; also a TypeError, as scikit-learn has it."""


class DataError(PolyshotError, ValueError):
    """A data set, file or folder is missing, corrupt or too small for what was asked of it."""


class TrainingError(PolyshotError):
    """Training cannot go on, or a run folder is not what it should be."""
