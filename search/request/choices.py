"""User choices by axis: documents and texts that restrict a space."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from forerun.spaces.documents import read_document, validate
from forerun.spaces.errors import RequestError

Check = Callable[[Mapping[str, list[object]]], None]


def read_space(path: Path, check: Check) -> dict[str, list[object]]:
    """Return the choices by axis of a space document: ``axes: {tp: [1, 2, 4], recompute: [full]}``.

    Raises
    ------
    RequestError
        The file cannot be read, or has unknown keys or values.
    """
    from pydantic import BaseModel, ConfigDict

    class SpaceDocument(BaseModel):
        """Choices that replace the default ones of some axes."""

        model_config = ConfigDict(extra="forbid", strict=True)
        axes: dict[str, list[int | str | bool] | int | str | bool]

    document = read_document(path)
    axes = validate(document, SpaceDocument).axes
    choices: dict[str, list[object]] = {
        axis: list(value) if isinstance(value, list) else [value] for axis, value in axes.items()
    }
    for axis, values in choices.items():
        try:
            check({axis: values})
        except RequestError as error:
            raise RequestError(f"{document.where(('axes', axis))}: {error}") from None
    return choices


def choices_of(space: Path | None, settings: Iterable[str], check: Check) -> dict[str, list[object]]:
    """Return the user's choices by axis: ``AXIS=CHOICES`` texts override a space document.

    ``check`` refuses choices that the kind of model lacks (``ModelKind.check``).

    Raises
    ------
    RequestError
        The document or a text cannot be read, or an axis is set twice.
    """
    choices = {} if space is None else read_space(space, check)
    stated: dict[str, list[object]] = {}
    for text in settings:
        axis, values = parse_choices(text)
        if axis in stated:
            raise RequestError(f"axis {axis} is set twice; name all its choices at once, like {axis}=1,2")
        check({axis: values})
        stated[axis] = values
    return choices | stated


def parse_choices(text: str) -> tuple[str, list[object]]:
    """Return axis and choices of one ``AXIS=CHOICE,CHOICE``.

    Raises
    ------
    RequestError
        The text has another form.
    """
    axis, separator, values = text.partition("=")
    choices = [value.strip() for value in values.split(",") if value.strip()]
    if not separator or not choices:
        raise RequestError(f"choices are written AXIS=CHOICE,CHOICE, like tp=1,2,4 or recompute=full, but got {text!r}")
    return axis.strip(), list(choices)
