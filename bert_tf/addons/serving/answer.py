"""Answers to questions about texts by a SQuAD model."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Path, deciding, default_of, option
from bert_tf.base.shared_options import SourceOptions
from bert_tf.tasks.squad.decoding import NBestEntry
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.text.documents import LANGUAGE_HELP, sentence_splitter
from bert_tf.text.normalization import Span

if TYPE_CHECKING:
    from bert_tf.conversion.source import Source

STANDARD_INPUT = "-"
NO_ANSWER = "no answer"


def _as_run(name: str, help_text: str) -> Any:
    default = default_of(SquadOptions, name)
    text = f"{help_text} Default: as the run had it, or else {default}."
    return option(None, text, least=1, decides="reading")


class AnswererOptions(SourceOptions, decides="nothing"):
    """The model, its text and its questions."""

    context_file: str = option(
        REQUIRED,
        "The text that the questions are about, UTF-8; - for standard input.",
        path=Path.FILE,
    )
    max_seq_length: int | None = _as_run(
        "max_seq_length", "Tokens of a window with the question, [CLS] and [SEP]."
    )
    doc_stride: int | None = _as_run(
        "doc_stride", "Tokens from one window's beginning to the next one's."
    )
    max_query_length: int | None = _as_run(
        "max_query_length", "Tokens of a question that are read."
    )
    n_best_size: int | None = _as_run(
        "n_best_size", "How many answers are weighed against each other."
    )
    max_answer_length: int | None = _as_run(
        "max_answer_length", "Maximum length of an answer in tokens."
    )
    predict_batch_size: int = option(8, "Windows per batch.", least=1)
    version_2_with_negative: bool | None = option(
        None,
        "Whether the model was trained to leave questions unanswered (SQuAD 2.0)."
        " Default: the run's own setting.",
        decides="reading",
    )
    null_score_diff_threshold: float | None = option(
        None,
        "Predict no answer if its score exceeds the best answer's by more than"
        " this. Default: the threshold found by run_squad's"
        " --find_null_threshold, else the run's own.",
        decides="reading",
    )
    language: str = option(
        "en", "The text's language, for splitting it into sentences." + LANGUAGE_HELP
    )
    top_k: int = option(1, "How many answers to print for each question.", least=1)


# The run's reading takes precedence over these, and the user's flags over both.
DEFAULTS: dict[str, Any] = {
    name: default_of(SquadOptions, name)
    for name in deciding(AnswererOptions, "reading")
}


def read_context(path: str) -> str:
    """Reads a text file, or standard input for "-"."""
    if path != STANDARD_INPUT:
        text = files.read_text(path, "context file")
    else:
        text = files.decoded(sys.stdin.buffer.read(), "Standard input")
    if not text.strip():
        raise InputError(f"--context_file={path}: no text to find answers in.")
    return text


def show(
    question: str,
    answers: Sequence[NBestEntry],
    context: str,
    split: Callable[[str], Sequence[str]],
) -> str:
    """Formats a question's answers for people to read, each with its sentence."""
    lines = [question]
    for answer in answers:
        if answer.span is None:
            lines.append(f"  {answer.probability:7.2%}  {NO_ANSWER}")
            continue
        start, end = answer.span
        first, last = sentence_round(context, answer.span, split)
        lines.append(f"  {answer.probability:7.2%}  {_on_one_line(answer.text)}")
        marked = f"{context[first:start]}**{context[start:end]}**{context[end:last]}"
        lines.append(f"           {_on_one_line(marked)}")
    return "\n".join(lines)


def sentence_round(
    context: str, span: Span, split: Callable[[str], Sequence[str]]
) -> Span:
    """Returns the place of the sentence, or sentences, that an answer spans."""
    start, end = found_start, found_end = span
    # The lines that the answer begins and ends in, whole.
    place = context.rfind("\n", 0, start) + 1
    for line in context[place : (context + "\n").index("\n", end)].split("\n"):
        line_end = place + len(line)
        for sentence in split(line):
            # Sentences differ from the line only by white space between them.
            while context[place].isspace():
                place += 1
            if place <= start < place + len(sentence):
                found_start = place
            place += len(sentence)
            if place - len(sentence) < end <= place:
                found_end = place
        place = line_end + 1
    return found_start, found_end


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def options_of(
    given: Mapping[str, Any], source: "Source", checkpoint: str = ""
) -> dict[str, Any]:
    """Returns an `Answerer`'s options: the user's, the run's, or the defaults."""
    from bert_tf.tasks.squad import null_threshold

    found = null_threshold.read(source.folder, checkpoint)
    of_run = source.reading.known()
    if found is not None:
        # A threshold found for the model takes precedence over the run's.
        of_run["null_score_diff_threshold"] = found
    num_positions = source.require_config().max_position_embeddings
    options = {
        **DEFAULTS,
        "max_seq_length": min(DEFAULTS["max_seq_length"], num_positions),
        "version_2_with_negative": found is not None,
    }
    for values in (of_run, given):
        options |= {
            name: v for name, v in values.items() if name in options and v is not None
        }
    threshold = given.get("null_score_diff_threshold")
    if threshold is not None and not options["version_2_with_negative"]:
        raise InputError(
            "--null_score_diff_threshold is for models that may say that there is no"
            " answer: give --version_2_with_negative too, or leave it out."
        )
    return options


def run(options: AnswererOptions) -> None:
    """Prints the answers to each question."""
    questions = options.positional
    if not questions or not all(map(str.strip, questions)):
        raise InputError(
            "Give a question: python -m bert_tf.answer --checkpoint=DIR"
            ' --context_file=FILE "Who ...?"'
        )
    context = read_context(options.context_file)
    split = sentence_splitter(options.language)
    cli.import_tensorflow(options)
    from bert_tf.addons.serving.answerer import Answerer
    from bert_tf.conversion.export import source_of
    from bert_tf.conversion.loading import load_span_predictor
    from bert_tf.conversion.source import load_tokenizer

    source = source_of(options)
    answerer = Answerer(
        load_span_predictor(source),
        load_tokenizer(source),
        batch_size=options.predict_batch_size,
        **options_of(options.as_flags(), source, source.checkpoint),
    )
    for question, answers in zip(questions, answerer(questions, context), strict=True):
        print(show(question, answers[: options.top_k], context, split), flush=True)
