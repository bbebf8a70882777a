r"""Answers questions about a text, with a model that was fine-tuned on SQuAD.

python -m bert_tf.answer --checkpoint=/tmp/squad_output --context_file=article.txt \
        "Which team won Super Bowl 50?"

It prints the answer, its probability among the best answers, and the sentence that it
stands in; or that the text does not answer the question, if the model is of SQuAD 2.0.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from bert_tf import cli, files, path_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.path_flags import Path
from bert_tf.tasks.squad.decoding import NBestEntry
from bert_tf.text.documents import sentence_splitter

if TYPE_CHECKING:
    from bert_tf.conversion.source import Source

STANDARD_INPUT = "-"
NO_ANSWER = "no answer"

# What a run's flags.json says goes before these, what the user says before both.
_DEFAULTS: dict[str, Any] = {
    "doc_stride": 128,
    "max_query_length": 64,
    "n_best_size": 20,
    "max_answer_length": 30,
}
_MAX_SEQ_LENGTH = 384


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""

    def string(name: str, default: str | None, help_text: str) -> None:
        flags.DEFINE_string(name, default, help_text, flag_values=flag_values)

    def path(name: str, default: str | None, help_text: str, kind: Path) -> None:
        path_flags.define(name, default, help_text, kind, flag_values=flag_values)

    path(
        "checkpoint",
        None,
        "A fine-tuning run's output_dir, a checkpoint in it, a TF1 release, or a"
        " Hugging Face folder: with its SQuAD head and its vocabulary.",
        Path.CHECKPOINT,
    )
    path(
        "context_file",
        None,
        "The text that the questions are about, UTF-8; - for standard input.",
        Path.FILE,
    )
    shared_flags.define(flag_values, "bert_config_file", "vocab_file")
    flags.DEFINE_bool(
        "do_lower_case",
        None,
        "Whether to lower-case the text. Default: as the checkpoint says, or its"
        " vocabulary; else true.",
        flag_values=flag_values,
    )
    for name, help_text in (
        ("max_seq_length", "Tokens of a window with the question, [CLS] and [SEP]."),
        ("doc_stride", "Tokens from one window's beginning to the next one's."),
        ("max_query_length", "Tokens of a question that are read."),
        ("n_best_size", "How many answers are weighed against each other."),
        ("max_answer_length", "An answer's tokens at most."),
    ):
        flags.DEFINE_integer(
            name,
            None,
            f"{help_text} Default: as the run had it, or else"
            f" {_DEFAULTS.get(name, _MAX_SEQ_LENGTH)}.",
            lower_bound=1,
            flag_values=flag_values,
        )
    flags.DEFINE_integer(
        "predict_batch_size",
        8,
        "Windows that the model is given at once.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "version_2_with_negative",
        None,
        "Whether the model was trained to say that there is no answer (SQuAD 2.0)."
        " Default: as the run had it.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        "There is no answer if its score is higher than the best answer's by more than"
        " this. Default: the threshold found by run_squad --find_null_threshold, or"
        " else what the run had.",
        flag_values=flag_values,
    )
    string("language", "en", "The text's language, for the ends of sentences.")
    flags.DEFINE_integer(
        "top_k",
        1,
        "How many answers to print for each question.",
        lower_bound=1,
        flag_values=flag_values,
    )
    for name in ("checkpoint", "context_file"):
        flags.mark_flag_as_required(name, flag_values)


def read_context(path: str) -> str:
    """The text of a file, or of standard input for "-"."""
    if path == STANDARD_INPUT:
        content = sys.stdin.buffer.read()
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"Standard input: not UTF-8 (byte 0x{content[error.start]:02x} at"
                f" {error.start})."
            ) from error
    else:
        text = files.read_text(path, "context file")
    if not text.strip():
        name = "Standard input" if path == STANDARD_INPUT else path
        raise InputError(f"{name} has no text to find answers in.")
    return text


def show(
    question: str,
    answers: Sequence[NBestEntry],
    context: str,
    split: Callable[[str], Sequence[str]],
) -> str:
    """A question's answers as a person reads them, each with its sentence."""
    from bert_tf.tasks.squad.spans import sentence_round

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


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def options_of(
    given: Mapping[str, Any], source: "Source", checkpoint: str = ""
) -> dict[str, Any]:
    """What to make an `Answerer` with: as the user says, or else as the run had it."""
    from bert_tf.tasks.squad import null_threshold

    run = flags_of_run(source.folder)
    options = {
        name: _first_given(given.get(name), run.get(name), default)
        for name, default in _DEFAULTS.items()
    }
    options["max_seq_length"] = _first_given(
        given.get("max_seq_length"),
        run.get("max_seq_length"),
        min(_MAX_SEQ_LENGTH, source.require_config().max_position_embeddings),
    )
    found = null_threshold.read(source.folder, checkpoint)
    is_version_2 = _first_given(
        given.get("version_2_with_negative"),
        run.get("version_2_with_negative"),
        found is not None,
    )
    threshold = given.get("null_score_diff_threshold")
    if threshold is not None and not is_version_2:
        raise InputError(
            "--null_score_diff_threshold is for models that may say that there is no"
            " answer: give --version_2_with_negative too, or leave it out."
        )
    options["version_2_with_negative"] = is_version_2
    options["null_score_diff_threshold"] = _first_given(
        threshold, found, run.get("null_score_diff_threshold"), 0.0
    )
    return options


def _first_given(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def flags_of_run(folder: str) -> dict[str, Any]:
    """What the run in a folder was given; nothing where it is of no run."""
    path = os.path.join(folder, "flags.json")
    if not files.exists(path):
        return {}
    values = files.read_json(path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold one JSON object.")
    return values


def run(flag_values: flags.FlagValues) -> None:
    """Prints the answers to each question."""
    questions = flag_values.positional
    if not questions:
        raise InputError(
            'Give a question: answer --checkpoint=DIR --context_file=FILE "Who ...?"'
        )
    for question in questions:
        if not question.strip():
            raise InputError("A question is empty.")
    context = read_context(flag_values.context_file)
    cli.import_tensorflow()
    from bert_tf.conversion.export import source_from_flags
    from bert_tf.conversion.loading import load_span_predictor, load_tokenizer
    from bert_tf.tasks.squad.spans import Answerer

    source = source_from_flags(flag_values)
    answerer = Answerer(
        load_span_predictor(source),
        load_tokenizer(source),
        batch_size=flag_values.predict_batch_size,
        **options_of(flag_values.flag_values_dict(), source, source.checkpoint),
    )
    split = sentence_splitter(flag_values.language)
    for question, answers in zip(questions, answerer(questions, context), strict=True):
        print(show(question, answers[: flag_values.top_k], context, split), flush=True)


def main() -> None:
    """The command line."""
    cli.main(define_flags, run, arguments="questions")


if __name__ == "__main__":
    main()
