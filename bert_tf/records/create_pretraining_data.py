"""Records for pre-training, made from text."""

import functools
from collections.abc import Callable, Iterator

from bert_tf.base import cli, files
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Path, option, with_default
from bert_tf.base.shared_options import ModelOptions
from bert_tf.instances.settings import DYNAMIC_MASKING, InstanceSettings
from bert_tf.text.documents import DEDUPLICATION
from bert_tf.text.sources import TextOptions, text_chunks


class PretrainingDataOptions(InstanceSettings, TextOptions, decides="nothing"):
    """The records to make, and their text."""

    vocab_file: str = with_default(ModelOptions, "vocab_file", REQUIRED)
    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    output_file: str = option(
        REQUIRED,
        "TFRecord files to write, separated by commas; records go to them in turn."
        " With --num_shards, one name, to which -00000-of-00064 is added.",
        path=Path.OUTPUT,
    )
    num_shards: int | None = option(
        None,
        "Divide the documents into this many groups, each with its own random"
        " stream and record file, made in parallel. Random next sentences then come"
        " from the same group. Default: all documents are one pool, as in the"
        " original.",
        least=1,
        decides="numbers",
    )
    deduplicate: str = option(
        DEDUPLICATION[0],
        "Drop documents or paragraphs that are exact duplicates of earlier ones. near:"
        " drop documents that are nearly the same as an earlier one.",
        choices=DEDUPLICATION,
        decides="numbers",
    )
    min_document_tokens: int = option(
        0, "Drop documents with fewer tokens.", least=0, decides="numbers"
    )
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
        "Overwrite files that have the names of --output_file: records made with other"
        " settings, and unknown files.",
    )

    def problems(self) -> Iterator[str]:
        """Yields problems with the options of Beam and of this machine."""
        yield from super().problems()
        if self.runner is None and self.beam_option:
            yield "`beam_option` is for Apache Beam: give `runner` too."
        if self.runner is not None and self.num_shards is None:
            yield (
                "`runner` needs `num_shards`, several for each worker: one pool of all"
                " documents is made on one machine."
            )
        for name in ("num_workers", "work_dir"):
            if self.runner is not None and getattr(self, name) is not None:
                yield f"`{name}` is only for this machine, not for `runner`."


def run(options: PretrainingDataOptions) -> None:
    """Writes the records that the flags ask for."""
    cli.show_log()
    from bert_tf.base.parallel import available_cores
    from bert_tf.records.manifest import manifest_path, written_files
    from bert_tf.records.record_sets import create_records, plan_record_set
    from bert_tf.text.vocabulary import Vocabulary

    num_workers = options.num_workers or available_cores()
    create: Callable[..., object] = functools.partial(
        create_records, num_workers=num_workers, work_dir=options.work_dir
    )
    if options.runner is not None:
        try:
            create_records_on_beam = addon("beam").create_records_on_beam
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
    output_files = files.split_paths(options.output_file)
    # A pattern may match files that an earlier run of this command wrote next to its
    # text, and the vocabulary.
    ours = output_files if files.exists(manifest_path(output_files)) else []
    changes = {}
    if options.masking == DYNAMIC_MASKING and not options.is_given("dupe_factor"):
        changes["dupe_factor"] = 1
    record_set = plan_record_set(
        text_chunks(options, written_files, passed_over=[*ours, options.vocab_file]),
        output_files,
        vocabulary,
        options.to(InstanceSettings, **changes),
        do_lower_case=options.do_lower_case,
        segmenter=options.segmenter,
        num_shards=options.num_shards,
        deduplicate=options.deduplicate,
        min_document_tokens=options.min_document_tokens,
        num_workers=num_workers,
    )
    create(record_set, overwrite=options.overwrite)
