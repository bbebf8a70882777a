"""Texts with labelled spans, as annotation tools write them.

A file is a JSON list, or has one JSON value per line (`bert_tf.base.rows`). A text is
one of these, with offsets in characters, half open:

doccano       {"text": "EU rejects", "label": [[0, 2, "ORG"]]}, or
              {"text": ..., "entities": [{"start_offset": 0, "end_offset": 2,
              "label": "ORG"}]}
Prodigy       {"text": ..., "spans": [{"start": 0, "end": 2, "label": "ORG"}],
              "answer": "accept"}; what was rejected or ignored is left out
Label Studio  {"data": {"text": ...}, "annotations": [{"result": [{"value":
              {"start": 0, "end": 2, "text": "EU", "labels": ["ORG"]}}]}]}, of several
              annotations the first that was not cancelled; its JSON_MIN, too
spaCy         ["EU rejects", {"entities": [[0, 2, "ORG"]]}], or a Doc's to_json:
              {"text": ..., "ents": [{"start": 0, "end": 2, "label": "ORG"}]}
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import rows
from bert_tf.base.errors import InputError
from bert_tf.tasks.tagging.sentences import Layout, Sentence, sentence_of_text
from bert_tf.text.normalization import Span, words_of_text

_SPANS = ("label", "labels", "entities", "ents", "spans")


class LabelledSpan(NamedTuple):
    """Some characters of a text, half open, and their label."""

    start: int
    end: int
    label: str


class AnnotatedText(NamedTuple):
    """A text and its spans in their order; None if it was not annotated."""

    text: str
    spans: list[LabelledSpan] | None
    source: str  # FILE:NUMBER, of its line or entry


def read_texts(
    path: str, text_field: str | None = None, span_field: str | None = None
) -> Iterator[AnnotatedText]:
    """The texts of a file, except those that the annotator rejected."""
    num_refused = 0
    for source, value in rows.objects(path, "file of texts and spans"):
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict):
            value = {**value[1], "text": value[0]}
        if not isinstance(value, dict):
            raise InputError(f"{source}: it must be an object with a text. {_HELP}")
        if value.get("answer", "accept") != "accept":
            num_refused += 1
            continue
        data = value.get("data")
        text = {**value, **(data if isinstance(data, dict) else {})}.get(
            text_field or "text"
        )
        if not isinstance(text, str):
            raise InputError(
                f"{source}: {text_field or 'text'!r} must be a text; `word_column`"
                f" gives another name. There are: {', '.join(value)}."
            )
        found = _spans_of(value, span_field)
        spans = None
        if found is not None:
            if not isinstance(found, list):
                raise InputError(f"{source}: the spans must be a list. {_HELP}")
            read = (_span(one, text, source) for one in found)
            spans = _apart(sorted(filter(None, read)), text, source)
        yield AnnotatedText(text, spans, source)
    if num_refused:
        logging.warning(
            "%s: left out %d texts that were rejected or ignored.", path, num_refused
        )


_HELP = (
    'A span is [START, END, "LABEL"] or {"start": START, "end": END, "label": "LABEL"},'
    " in characters."
)


def _spans_of(value: dict[str, Any], field: str | None) -> Any:
    annotations = value.get("annotations", value.get("completions"))
    if field is None and isinstance(annotations, list):
        results = [
            one.get("result")
            for one in annotations
            if isinstance(one, dict) and not one.get("was_cancelled")
        ]
        return results[0] if results else None
    names = _SPANS if field is None else (field,)
    return next((value[name] for name in names if value.get(name) is not None), None)


def _span(one: Any, text: str, source: str) -> LabelledSpan | None:
    """A span without white space at its ends; None for others, such as relations."""
    label: Any = None
    start, end, said = None, None, None
    if isinstance(one, list) and len(one) >= 3:
        start, end, label = one[:3]
    elif isinstance(one, dict):
        value = one.get("value", one)
        if "type" in one and not (isinstance(value, dict) and "start" in value):
            return None
        start = value.get("start", value.get("start_offset"))
        end = value.get("end", value.get("end_offset"))
        label, said = value.get("label"), value.get("text")
        labels = value.get("labels")
        if label is None and isinstance(labels, list) and len(labels) == 1:
            (label,) = labels
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        raise InputError(f"{source}: not a span with one label: {one!r}. {_HELP}")
    if not 0 <= start < end <= len(text) or not text[start:end].strip():
        raise InputError(
            f"{source}: the span {start} to {end} ({label}) has no text; the text has"
            f" {len(text)} characters."
        )
    if isinstance(said, str) and said != text[start:end]:
        raise InputError(
            f"{source}: the span {start} to {end} is {text[start:end]!r}, not {said!r}:"
            " offsets must be in characters, not in bytes or UTF-16."
        )
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    end -= len(inner) - len(inner.rstrip())
    return LabelledSpan(start, end, label)


def _apart(spans: list[LabelledSpan], text: str, source: str) -> list[LabelledSpan]:
    """The spans without repetitions; InputError if two of them overlap."""
    spans = sorted({*spans})
    for one, other in itertools.pairwise(spans):
        if other.start < one.end:
            raise InputError(
                f"{source}: {_shown(one, text)} and {_shown(other, text)} overlap; a"
                " word has one label. Keep one of them, such as the outermost."
            )
    return spans


def _shown(span: LabelledSpan, text: str) -> str:
    return f"{text[span.start : span.end]!r} ({span.start} to {span.end}, {span.label})"


class Labelled(NamedTuple):
    """The words of a text by labels of IOB2, and how many spans were widened."""

    labels: list[str]
    widened: list[LabelledSpan]  # that end within a word


def labels_of_words(
    one: AnnotatedText, words: Sequence[Span], widens: bool
) -> Labelled:
    """The labels of a text's words; a span within a word is widened, or refused."""
    labels, widened = ["O"] * len(words), []
    for span in one.spans or ():
        inside = [
            number
            for number, (start, end) in enumerate(words)
            if start < span.end and span.start < end
        ]
        if (words[inside[0]][0], words[inside[-1]][1]) != (span.start, span.end):
            widened.append(span)
            if not widens:
                raise InputError(
                    f"{one.source}: {_shown(span, one.text)} ends within a word;"
                    " `spans_inside_words=widen` takes the whole word."
                )
        for number in inside:
            if labels[number] != "O":
                start, end = words[number]
                raise InputError(
                    f"{one.source}: the word {one.text[start:end]!r} is in two spans,"
                    f" the second of which is {_shown(span, one.text)}."
                )
            name = "_".join(span.label.split())
            labels[number] = f"{'I' if number > inside[0] else 'B'}-{name}"
    return Labelled(labels, widened)


def sentences_of(
    path: str, layout: Layout, has_labels: bool | None, document: int
) -> Iterator[Sentence]:
    """Yields each text as a sentence, its spans as labels of words."""
    widened: list[str] = []
    num_spans = 0
    for one in read_texts(path, layout.word_column, layout.label_column):
        spans = words_of_text(
            one.text,
            splits_cjk=True,
            splits_punctuation=True,
            segmenter=layout.segmenter,
        )
        labels = None
        if has_labels and one.spans is None:
            raise InputError(f"{one.source}: it has no spans, not even an empty list.")
        if has_labels is not False and one.spans is not None:
            labels, those = labels_of_words(one, spans, layout.widens_spans)
            num_spans += len(one.spans)
            widened += [f"{one.source}: {one.text[s.start : s.end]!r}" for s in those]
        if spans:
            yield sentence_of_text(one.text, spans, labels, document, one.source)
            document += 1
    if widened:
        logging.warning(
            "%s: %d of %d spans end within a word, and were widened to whole words; the"
            " first one: %s.",
            *(path, len(widened), num_spans, widened[0]),
        )
