"""Messages of a stream: the texts in them, and their answers.

A failed message keeps its place in the stream: it is written with the reason, and never dropped.
Programs that read the output rely on the names of the headers. docs/reference/columns.md documents
these names.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from tt.pipelines.inference.text_model import TextModel
from tt.pipelines.texts.results import FAILED, VALUES, WORST_FIRST, TextFields, TranslatedText

# Headers of written messages. They replace headers with the same names, which messages from another
# tt stream have.
SOURCE_HEADER = "tt-source"  # "topic/partition/offset" of the message that was read
STATUS_HEADER = "tt-status"
ERROR_HEADER = "tt-error"
OWN_HEADERS = (SOURCE_HEADER, STATUS_HEADER, ERROR_HEADER)

TOO_LARGE = "the message and its translation are larger than the topic allows"
SMALLEST = 4  # the last `attempt` of `Outputs.deliver`

Headers = tuple[tuple[str, bytes | None], ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message that was read."""

    value: bytes | None  # None deletes its key from a compacted topic
    key: bytes | None = None
    headers: Headers = ()
    source: str  # its position, as "topic/partition/offset" or "subscription/id"
    partition: int = 0
    offset: int = 0
    milliseconds: int | None = None  # its timestamp since 1970, if it has one

    @property
    def size(self) -> int:
        """The size in bytes, including the key and the headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + headers


class MessageError(Exception):
    """Raised if a message lacks an expected text; the error's own text is the reason."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer to a message: a translation, or the reason for a failure."""

    message: Message
    value: bytes | None
    status: str  # one of STATUSES
    error: str | None = None

    @property
    def headers(self) -> Headers:
        """The headers of the message, followed by those of tt."""
        kept = [header for header in self.message.headers if header[0] not in OWN_HEADERS]
        kept += [(SOURCE_HEADER, self.message.source.encode()), (STATUS_HEADER, _utf8(self.status))]
        if self.error is not None:
            kept.append((ERROR_HEADER, _utf8(self.error)))
        return tuple(kept)


def read_texts(message: Message, *, form: TextFields) -> list[bytes | None]:
    """Return the text of each field, or the whole message if there are no fields.

    A text is None if the field or the message is null.

    Raises:
      MessageError: A field is missing or not a text, or a field to add already exists.
    """
    if not form.fields:
        return [message.value]
    if message.value is None:
        return [None for _ in form.fields]
    found = _read_object(message.value)
    for field, added in form.added():
        if form.name(field, added) in found:
            raise MessageError(f"the message already has a field {form.name(field, added)}")
    return [_text_at(found, field) for field in form.fields]


def answer(message: Message, found: Sequence[TranslatedText], *, form: TextFields) -> Answer:
    """Return the answer to a message whose texts were translated.

    A JSON object keeps all its bytes up to the final brace, including numbers, order and spaces.

    Args:
      message: The message.
      found: The translations of its texts, in the order of `read_texts`.
      form: The fields that contain texts.
    """
    status = min((each.status for each in found), key=WORST_FIRST.index)
    error = next((each.error for each in found if each.status == status and each.error), None)
    if message.value is None:
        return Answer(message=message, value=None, status=status)
    if not form.fields:
        [text] = found
        value = (text.translation or "").encode()
    else:
        of_field = dict(zip(form.fields, found, strict=True))
        added = {
            form.name(field, name): VALUES[name](of_field[field]) for field, name in form.added()
        }
        value = _append(message.value, added)
    return Answer(message=message, value=value, status=status, error=error)


def fail(message: Message, error: str, *, form: TextFields) -> Answer:
    """Return the answer to a message that could not be translated.

    A JSON object gets the status and the error of its fields. If there are fields, any other value
    stays unchanged. Without fields, the value is empty, so that no reader mistakes it for a
    translation.
    """
    value = message.value
    if value is not None and not form.fields:
        value = b""
    elif value is not None:
        try:
            taken = _read_object(value)
        except MessageError:
            pass
        else:
            text = TranslatedText(status=FAILED, error=error)
            added = {form.name(field, name): VALUES[name](text) for field, name in form.added()}
            if not taken.keys() & added.keys():
                value = _append(value, added)
    return Answer(message=message, value=value, status=FAILED, error=error)


class Delivery(NamedTuple):
    """A form of an answer that can be written."""

    status: str
    topic: Any
    value: bytes | None
    headers: Headers
    key: bytes | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """The topics for answers.

    Attributes:
      output: The output topic, as the broker's client names it.
      dead_letter: The topic for failed messages, or None if they are written to `output`.
      form: The fields that contain texts.
    """

    output: Any
    dead_letter: Any = None
    form: TextFields = dataclasses.field(default_factory=TextFields)

    def deliver(self, answer: Answer, *, attempt: int) -> Delivery:
        """Return a form of an answer; each attempt returns a smaller form.

        Attempt 0 is the answer itself. If it is too large, the message counts as failed: attempt 1
        has its value without a translation, attempt 2 has no value, attempt 3 has only the headers
        of tt, and attempt 4 has no key either. Therefore no message blocks its partition.

        Args:
          answer: The answer.
          attempt: Number of larger forms that were refused.
        """
        if attempt > 0:
            answer = fail(answer.message, TOO_LARGE, form=self.form)
        is_dead_letter = self.dead_letter is not None and answer.status == FAILED
        topic = self.dead_letter if is_dead_letter else self.output
        value = answer.message.value if is_dead_letter else answer.value
        if attempt > 1:
            value = None if value is None else b""
        headers = answer.headers
        if attempt > 2:
            headers = tuple(header for header in headers if header[0] in OWN_HEADERS)
        key = answer.message.key if attempt < SMALLEST else None
        return Delivery(answer.status, topic, value, headers, key)

    def deliver_within(self, answer: Answer, *, fits: Callable[[Delivery], bool]) -> Delivery:
        """Return the largest form of an answer that fits, or the smallest form if none fits."""
        for attempt in range(SMALLEST + 1):
            found = self.deliver(answer, attempt=attempt)
            if fits(found):
                break
        return found


def answer_messages(
    messages: Sequence[Message], *, form: TextFields, model: TextModel
) -> tuple[list[Answer], list[TranslatedText]]:
    """Translate messages; return one answer per message, and the translations of all texts.

    Args:
      messages: The messages.
      form: The fields that contain texts.
      model: Translates the texts.

    Raises:
      Exception: An error that no text caused; see `translate_texts`.
    """
    read: list[list[bytes | None] | MessageError] = []
    for message in messages:
        try:
            read.append(read_texts(message, form=form))
        except MessageError as error:
            read.append(error)
    cells = [cell for each in read if not isinstance(each, MessageError) for cell in each]
    found = model.translate(cells).translations
    rest = iter(found)
    answers = [
        fail(message, str(each), form=form)
        if isinstance(each, MessageError)
        else answer(message, list(itertools.islice(rest, len(each))), form=form)
        for message, each in zip(messages, read, strict=True)
    ]
    return answers, found


def _read_object(value: bytes) -> dict[str, Any]:
    try:
        # The integers are not needed, and Python refuses integers with over 4,300 digits.
        found = json.loads(value.decode(), parse_int=lambda digits: 0, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise MessageError(f"not UTF-8: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not JSON: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise MessageError(f"not a JSON object but {type(found).__name__}")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _text_at(found: dict[str, Any], field: str) -> bytes | None:
    """Return the text of a field. A field whose own name contains the dots comes first."""
    value: Any = found
    for name in [field] if field in found else field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise MessageError(f"the message has no field {field}")
        value = value[name]
    if value is None:
        return None
    if not isinstance(value, str):
        raise MessageError(f"the field {field} must be a text, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise MessageError(
            f"the field {field} contains half of a surrogate pair: {error.reason}"
        ) from error


def _append(value: bytes, added: dict[str, Any]) -> bytes:
    """Append fields to a JSON object, without changing its other bytes."""
    body = value.rstrip()[:-1]
    comma = b"" if body.rstrip().endswith(b"{") else b", "
    return body + comma + json.dumps(added, ensure_ascii=False).encode()[1:]


def _utf8(text: str) -> bytes:
    return text.encode(errors="backslashreplace")
