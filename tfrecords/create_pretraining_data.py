"""Creates masked language model and next sentence records for BERT's pre-training.

Flags, defaults and records are those of google-research/bert. The input is UTF-8 text,
one sentence per line with a blank line between documents, or the output of
wikiextractor, JSON lines, or a TensorFlow dataset. NAME.manifest.json and
NAME.vocab.txt are written next to the records, where NAME is the first output file
without a shard suffix such as -00000-of-00008.

The same command again finds its records done, or resumes where it was killed. It
overwrites other files only with --overwrite.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

from bert_tf import cli, files
from bert_tf.errors import InputError
from bert_tf.instances.settings import (
    DYNAMIC_MASKING,
    MASKING,
    MIN_SEQ_LENGTH,
    NEXT_SENTENCE,
    NSP_LABELS,
    ORIGINAL_LABELS,
    PAIRS,
    InstanceSettings,
)
from bert_tf.options import REQUIRED, Path, option, with_default
from bert_tf.records.text_input import SentenceTextOptions, text_chunks
from bert_tf.records.tokenized_corpus import DEDUPLICATION
from bert_tf.training.training_options import ModelOptions


class PretrainingDataOptions(SentenceTextOptions):
    """Which records are made, of which text."""

    vocab_file: str = with_default(ModelOptions, "vocab_file", REQUIRED)
    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    max_seq_length: int = option(
        128,
        "Maximum length of a sequence in WordPieces, including [CLS] and [SEP]."
        " Longer ones are truncated, unless they are read in windows.",
        least=MIN_SEQ_LENGTH,
    )
    max_predictions_per_seq: int = option(
        20,
        "Masked-LM slots per sequence; must equal the records', unless these are"
        " masked while they are read.",
        least=1,
    )
    output_file: str = option(
        REQUIRED,
        "TFRecord files to write, separated by commas; records go to them in turn."
        " With --num_shards, one name, to which -00000-of-00064 is added.",
        path=Path.OUTPUT,
    )
    do_whole_word_mask: bool = option(
        False, "Mask all pieces of a word or none, rather than each piece on its own."
    )
    random_seed: int = option(12345, "Seed of the random stream.", most=math.inf)
    dupe_factor: int = option(
        10,
        "Passes over the documents, each with different pairs and masks. With"
        " --masking=dynamic the default is 1.",
        least=1,
    )
    masked_lm_prob: float = option(
        0.15, "Share of a sequence's tokens to predict.", above=0.0, most=1.0
    )
    short_seq_prob: float = option(
        0.1,
        "Probability that a document's sequences aim at a shorter length.",
        least=0.0,
        most=1.0,
    )
    num_shards: int | None = option(
        None,
        "Divide the documents into this many groups, each with its own random"
        " stream and record file, made in parallel. Random next sentences then come"
        " from the same group. Default: all documents are one pool, as in the"
        " original.",
        least=1,
    )
    masking: str = option(
        MASKING[0],
        "static: mask the records now, as in the original; dynamic: write them"
        " unmasked, and training masks them differently in each epoch.",
        choices=MASKING,
    )
    pairs: str = option(
        PAIRS[0],
        "The sequences. nsp: two segments, the second one the next or a random one;"
        " none: whole sentences in one segment (RoBERTa); sop: two consecutive"
        " segments, in order or swapped (ALBERT); previous: the second one is the"
        " next, a random or the previous one, three labels (StructBERT).",
        choices=PAIRS,
    )
    nsp_labels: str = option(
        NSP_LABELS[0],
        "original: as in the original; exact: without its flaws, so a lone sentence"
        " does not always get a random next one, and a random one never comes from"
        " the same document.",
        choices=NSP_LABELS,
    )
    packed_length: int | None = option(
        None,
        "Pack several sequences into each record, a row of this many tokens,"
        " because padding costs a training step as much as text. Each sequence"
        " keeps its positions and its label, and attends only to itself.",
        least=MIN_SEQ_LENGTH,
    )
    deduplicate: str = option(
        DEDUPLICATION[0],
        "Drop documents, or paragraphs, that are exact duplicates of earlier ones.",
        choices=DEDUPLICATION,
    )
    min_document_tokens: int = option(0, "Drop documents with fewer tokens.", least=0)
    work_dir: str | None = option(
        None,
        "Folder for temporary token files, about half the text's size. Default: the"
        " records' folder.",
        path=Path.OUTPUT,
    )
    runner: str | None = option(
        None,
        "Make the shards with Apache Beam on this runner: DirectRunner,"
        " FlinkRunner, SparkRunner, DataflowRunner, ... Default: on this machine,"
        " without Beam. The records are the same. All workers must be able to reach"
        " input and output.",
    )
    beam_option: tuple[str, ...] = option(
        (),
        "An option for Beam, such as --beam_option=--direct_num_workers=2; may be"
        " repeated.",
        is_repeated=True,
    )
    overwrite: bool = option(
        False,
        "Overwrite records made with other settings, and unknown files, with the"
        " names of --output_file.",
    )

    def problems(self) -> Iterator[str]:
        """Labels for pairs without any; options of Beam and of this machine."""
        yield from super().problems()
        if self.pairs != NEXT_SENTENCE and self.nsp_labels != ORIGINAL_LABELS:
            yield "`nsp_labels=exact` is for `pairs=nsp` alone."
        if self.packed_length and self.packed_length < self.max_seq_length:
            yield (
                f"`packed_length={self.packed_length}` of a row must not be less than"
                f" `max_seq_length={self.max_seq_length}` of a sequence."
            )
        if self.runner is None and self.beam_option:
            yield "`beam_option` is for Apache Beam: give `runner` too."
        if self.runner is not None and self.num_shards is None:
            yield (
                "`runner` needs `num_shards`, several for each worker: one pool of all"
                " documents is made on one machine."
            )
        for name in ("num_workers", "work_dir"):
            if self.runner is not None and getattr(self, name) is not None:
                yield f"`{name}` is for this machine alone, not for `runner`."


def run(options: PretrainingDataOptions) -> None:
    """Writes the records that the flags ask for."""
    from bert_tf.parallel import available_cores
    from bert_tf.records.manifest import manifest_path
    from bert_tf.records.record_sets import create_records, plan_record_set
    from bert_tf.text.vocabulary import Vocabulary

    num_workers = options.num_workers or available_cores()
    create: Callable[..., object] = functools.partial(
        create_records, num_workers=num_workers, work_dir=options.work_dir
    )
    if options.runner is not None:
        try:
            from bert_tf.records.beam import create_records_on_beam
        except ModuleNotFoundError as error:
            if error.name != "apache_beam":
                raise
            raise InputError(
                f"--runner={options.runner} needs Apache Beam: pip install"
                " 'bert-tf[beam]'"
            ) from error
        create = functools.partial(
            create_records_on_beam,
            runner=options.runner,
            beam_options=options.beam_option,
        )
    vocabulary = Vocabulary.from_file(options.vocab_file)
    vocabulary.require_special_tokens(options.vocab_file)
    output_files = options.output_file.split(",")
    # A pattern may match what an earlier run of this command wrote next to its text,
    # and the vocabulary.
    ours = output_files if files.exists(manifest_path(output_files)) else []
    values = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(InstanceSettings)
    }
    if options.masking == DYNAMIC_MASKING and options.given("dupe_factor") is None:
        values["dupe_factor"] = 1
    record_set = plan_record_set(
        text_chunks(options, passed_over=[*ours, options.vocab_file]),
        output_files,
        vocabulary,
        InstanceSettings(**values),
        do_lower_case=options.do_lower_case,
        num_shards=options.num_shards,
        deduplicate=options.deduplicate,
        min_document_tokens=options.min_document_tokens,
        num_workers=num_workers,
    )
    create(record_set, overwrite=options.overwrite)


main = cli.command(run)

if __name__ == "__main__":
    main()
