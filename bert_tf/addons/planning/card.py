"""The card of a pre-trained model: OUTPUT_DIR/README.md, as model hubs show it.

Its contents come from the records' manifests, the run's folder and its metrics. The
block at its beginning is the metadata that hubs read (YAML, with values in JSON).
"""

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_tf.base import files
from bert_tf.base.config import BertConfig
from bert_tf.base.parallel import available_cores
from bert_tf.base.pictures import table
from bert_tf.records.manifest import Manifest, shared_text
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.training import run_folder
from bert_tf.training.events import Callback
from bert_tf.training.reporting import CURVES_NAME, metrics_of
from bert_tf.training.run_folder import Start
from bert_tf.training.strategy import description, is_chief

if TYPE_CHECKING:
    import keras

    from bert_tf.tasks.pretraining import PretrainingRun

NAME = "README.md"
_LIBRARY = "bert_tf"
_SHOWN_FILES = 20
# The figures of an evaluation that a reader compares.
_FIGURES = ("masked_lm_loss", "masked_lm_accuracy", "bits_per_byte")
# The figures of a model that knows only the frequencies of tokens.
_WITHOUT_CONTEXT = (
    "masked_lm_majority",
    "masked_lm_unigram_loss",
    "unigram_bits_per_byte",
)


class Card(Callback):
    """Writes the card when a training is evaluated."""

    def __init__(self, pretraining: "PretrainingRun") -> None:
        self._of = pretraining

    def reported(self, model: "keras.Model", step: int) -> None:
        """Writes the card, in place of an earlier one."""
        pretraining = self._of
        options, held_out = pretraining.options, pretraining.held_out[-1]
        if not options.do_train or not is_chief(pretraining.strategy):
            return
        is_apart = bool(options.eval_input_file)
        write_card(
            options.output_dir,
            config=pretraining.config,
            manifests=[m for one in pretraining.records for m in one.manifests],
            held_out=held_out.manifests if is_apart else None,
            num_evaluated=options.max_eval_steps * options.eval_batch_size,
            num_held_out=sum(held_out.counts),
            step=step,
            sequences_per_step=[spec.batch_size for spec in pretraining.specs],
            num_weights=model.count_params(),
            devices=description(pretraining.strategy),
            base_model=options.init_checkpoint,
            data_license=options.data_license,
        )
        logging.info("The model's card is %s.", card_path(options.output_dir))


def card_path(folder: str) -> str:
    """Returns the path of a run's card."""
    return os.path.join(folder, NAME)


def write_card(
    folder: str,
    *,
    config: BertConfig,
    manifests: Sequence[Manifest],
    held_out: Sequence[Manifest] | None,  # for the evaluations; None: the same
    num_evaluated: int,  # of their records, at most; 0: all
    num_held_out: int,
    step: int,
    sequences_per_step: Sequence[int],  # for each phase
    num_weights: int,
    devices: str,
    base_model: str | None,
    data_license: str | None,
) -> None:
    """Writes the card, in place of an earlier one."""
    # Phases of one length have the same records.
    manifests = list({one.identity: one for one in manifests}.values())
    language = next((one.split_sentences for one in manifests), "")
    earlier = run_folder.starts(folder)
    licenses = [start.flags.get("data_license") for start in earlier] + [data_license]
    data_license = ", ".join(dict.fromkeys(filter(None, licenses))) or None
    evaluated_on = {start.flags.get("eval_input_file") for start in earlier}
    metadata = {
        "license": data_license,
        "language": language or None,
        "library_name": _LIBRARY,
        "pipeline_tag": "fill-mask",
        "base_model": base_model,
        "tags": ["bert", "masked-lm"],
    }
    entries = metrics_of(folder)
    hours = max((one.get("seconds", 0.0) for one in entries), default=0.0) / 3600.0
    batches = ", ".join(map(str, dict.fromkeys(sequences_per_step)))
    lengths = ", ".join(str(one.max_seq_length) for one in manifests) or "unknown"
    sections = [
        "---",
        *(f"{name}: {json.dumps(x)}" for name, x in metadata.items() if x),
        "---",
        "",
        f"# {os.path.basename(os.path.abspath(folder))}",
        "",
        f"A BERT (Devlin et al. 2018) of {config.num_hidden_layers} layers of"
        f" {config.hidden_size}, {num_weights:,} weights,"
        + (f" trained on from {base_model}." if base_model else " from scratch."),
        "",
        table(
            ["training", ""],
            [
                ["steps", f"{step:,}"],
                ["sequences per step", batches],
                ["tokens per sequence, at most", lengths],
                ["hours", f"{hours:.2f}"],
                ["machine", f"{devices}; {_machine()}"],
                ["vocabulary", f"{config.vocab_size:,} tokens{_casing(manifests)}"],
            ],
        ),
        "",
        "## Text",
        "",
        *_text(manifests, data_license),
        *_earlier_text(earlier),
    ]
    first = ""
    if 0 < num_evaluated < num_held_out:
        first = f"the first {num_evaluated:,} of {num_held_out:,} "
    on = _held_out_text(held_out, manifests, first)
    if len(evaluated_on) > 1:
        on = "Each on the held-out records of its start."
    if evaluations := _evaluations(entries, on):
        sections += ["## Held-out text", "", *evaluations]
    if files.exists(os.path.join(folder, CURVES_NAME)):
        sections += [f"![The curves of its training]({CURVES_NAME})", ""]
    name = os.path.basename(os.path.normpath(folder))
    sections += [_use(name)]
    files.write_atomically(card_path(folder), "\n".join(sections))


def copy_card(folder: str, target: str, name: str) -> None:
    """Copies a run's card, if it has one, for an export that transformers reads."""
    if not files.exists(card_path(folder)):
        return
    card = files.read_text(card_path(folder))
    of_run, of_export = (f'library_name: "{x}"\n' for x in (_LIBRARY, "transformers"))
    text, _, _ = card.replace(of_run, of_export, 1).partition(_USE_TITLE)
    files.write_atomically(card_path(target), text + _use(name))
    if files.exists(curves := os.path.join(folder, CURVES_NAME)):
        copied = os.path.join(target, CURVES_NAME)
        files.write_atomically(copied, files.read_bytes(curves))


def _use(name: str) -> str:
    where = f"In the folder that `{name}` is in:"
    return "\n\n".join([_USE_TITLE, where, _USE.replace("FOLDER", name)]) + "\n"


def _machine() -> str:
    cores = available_cores()
    return (
        f"{cores} core{'s' if cores > 1 else ''}, {platform.machine()},"
        f" {platform.system()}"
    )


def _casing(manifests: Sequence[Manifest]) -> str:
    if not manifests:
        return ""
    casing = ", lower case" if manifests[0].do_lower_case else ", cased"
    segmenter = manifests[0].segmenter
    return casing + (f", segmenter {segmenter}" if segmenter != NO_SEGMENTER else "")


def _text(manifests: Sequence[Manifest], data_license: str | None) -> Iterator[str]:
    """Yields the paragraph about the records' text."""
    if not manifests:
        yield from ("The records have no manifest: their text is not known.", "")
        return
    sources = {one.sha256: one for each in manifests for one in each.source_files}
    read = [one.report.get("read", {}) for one in manifests]
    amounts = [
        f"{sum(one[name] for one in read):,} {name}"
        for name in ("documents", "sentences", "tokens")
        if all(name in one for one in read)
    ]
    yield f"{', '.join(amounts)}; license: {data_license or 'not given'}."
    yield ""
    yield table(
        ["file", "bytes", "SHA-256"],
        [
            [os.path.basename(one.path), f"{one.num_bytes:,}", one.sha256]
            for one in list(sources.values())[:_SHOWN_FILES]
        ],
    )
    if (more := len(sources) - _SHOWN_FILES) > 0:
        yield f"and {more} more."
    digests = ", ".join(f"`{one.identity}`" for one in manifests)
    yield from ("", f"Digest of the text and of how the records were made: {digests}.")
    yield ""


def _earlier_text(starts: Sequence[Start]) -> Iterator[str]:
    """Yields the paragraph about earlier starts with other records."""
    if len({start.data.digest for start in starts}) > 1:
        yield from ("The steps were made on several sets of records:", "")
        rows: list[list[str]] = []
        for start in starts:
            if not rows or rows[-1][1] != start.data.name:
                rows.append([f"{start.step:,}", start.data.name])
        yield table(["from step", "records"], rows)
        yield ""


def _held_out_text(
    held_out: Sequence[Manifest] | None,
    manifests: Sequence[Manifest],
    first: str,
) -> str:
    if held_out is None:
        return "On the first training records."
    names = sorted({os.path.basename(s.path) for m in held_out for s in m.source_files})
    seen = shared_text(held_out, manifests)
    trained_on = f" The training has seen {', '.join(seen)}." if seen else ""
    on = ", ".join(names)
    if first or not names:
        on = f"{first}records " + (f"of {on}" if names else "without a manifest")
    return f"On {on}.{trained_on}"


def _evaluations(entries: Iterable[Mapping[str, Any]], on: str) -> list[str]:
    """Returns the first evaluation and the last one."""
    found = [one for one in entries if "eval/masked_lm_loss" in one]
    if not found:
        return []
    shown = found if len(found) == 1 else [found[0], found[-1]]
    rows = [
        [name, *(f"{one[f'eval/{name}']:.4f}" for one in shown)]
        for name in (*_FIGURES, *_WITHOUT_CONTEXT)
        if all(f"eval/{name}" in one for one in shown)
    ]
    steps = [f"step {one['step']:,}" for one in shown]
    return [on, "", table(["", *steps], rows), ""]


_USE_TITLE = "## Use"
_USE = """\
```python
import bert_tf

model = bert_tf.load("FOLDER")
print(model.fill("Paris is the [MASK] of France."))
print(model.embed(["A text."]).shape)

tokenizer = bert_tf.load_tokenizer("FOLDER")
classifier = bert_tf.load_classifier("FOLDER", num_labels=2)
classifier.compile(bert_tf.create_optimizer(5e-5, 100, 10))
classifier.fit(tokenizer(["A good text.", "A bad one."]), [1, 0])
```"""
