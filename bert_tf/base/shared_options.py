"""The model, lengths and devices: the options that most commands have."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bert_tf.base import options
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Options, Path, option

if TYPE_CHECKING:
    from bert_tf.base.config import BertConfig


class ModelOptions(Options, title=options.MODEL, decides="numbers"):
    """The model, its vocabulary, and the weights to start from."""

    bert_config_file: str | None = option(
        None, "bert_config.json: the architecture of the model.", path=Path.FILE
    )
    vocab_file: str | None = option(
        None, "The WordPiece vocabulary: one token per line.", path=Path.FILE
    )
    do_lower_case: bool = option(
        True,
        "Lower-case the text and strip accents: true for uncased vocabularies,"
        " false for cased ones. Default: the checkpoint's setting, else true.",
    )
    init_checkpoint: str | None = option(
        None,
        "Weights to start from: an output_dir of bert_tf or a checkpoint in it, a"
        " released TF1 checkpoint (.../bert_model.ckpt), a Hugging Face folder, or a"
        " KerasHub preset. Its config, vocabulary and casing are used too. A checkpoint"
        " in --output_dir takes precedence.",
        path=Path.CHECKPOINT,
        decides="result",
        in_summary=True,
    )


class LongTextOptions(Options, title=options.METHODS, decides="numbers"):
    """A model for longer texts than its checkpoint's."""

    max_position_embeddings: int | None = option(
        None,
        "The length of the longest sequence, if the model is to have more positions"
        " than its checkpoint or config: their rows are repeated.",
        least=1,
    )
    attention_window: int | None = option(
        None,
        "Local attention: how many tokens to each side a token sees, besides the global"
        " ones (Longformer, Beltagy et al. 2020; transformers' attention_window counts"
        " both sides). [CLS] is global for classes, the question for questions.",
        least=1,
    )

    @property
    def num_global(self) -> int | None:
        """The global tokens of local attention; None for the model's own."""
        return None

    def resized(self, config: "BertConfig") -> "BertConfig":
        """Returns a config with the positions and the window that are given.

        Raises:
            InputError: the model has no local attention.
        """
        names = ("max_position_embeddings", "attention_window")
        given = {name: getattr(self, name) for name in names if self.is_given(name)}
        try:
            config = dataclasses.replace(config, **given)
        except ValueError as error:
            raise InputError(str(error)) from error
        if not config.attention_window or self.num_global is None:
            return config
        return dataclasses.replace(config, global_tokens=self.num_global or None)


class LengthOptions(Options, title=options.LENGTHS, decides="numbers"):
    """The lengths of sequences and of batches."""

    max_seq_length: int = option(
        128,
        "Maximum length of a sequence in WordPieces, including [CLS] and [SEP]."
        " Longer ones are truncated, unless they are read in windows.",
        decides="reading",
        in_summary=True,
    )
    pad: str = option(
        "length",
        "length: batches of texts of similar length, padded to one of a few"
        " lengths; max: all padded to --max_seq_length, as in the original.",
        choices=("length", "max"),
    )
    length_buckets: int = option(
        12,
        "For --pad=length: the maximum number of different lengths, chosen to leave"
        " the least padding. The model is compiled once for each.",
        least=1,
    )

    @property
    def num_lengths(self) -> int | None:
        """The most lengths of batches; None for max_seq_length alone."""
        return None if self.pad == "max" else self.length_buckets


class DeviceOptions(Options, title=options.DEVICES, decides="nothing"):
    """Where to run, and with what."""

    backend: str | None = option(
        None,
        "What Keras computes with: tensorflow, or jax for today's TPUs (needs pip"
        " install 'bert-tf[jax]'). Checkpoints are the same. Default: KERAS_BACKEND,"
        " else tensorflow.",
        choices=("tensorflow", "jax"),
        title=options.DEVICES,
    )
    distribution: str = option(
        "default",
        "The devices: the machine's default one (default), one_device, all GPUs of the"
        " machine (mirrored), several processes as described by TF_CONFIG or by what"
        " started them, such as Slurm or Kubernetes (multi_worker), or a TPU (tpu).",
        choices=("default", "one_device", "mirrored", "multi_worker", "tpu"),
    )
    local_workers: int = option(
        1,
        "With --distribution=multi_worker: start this many processes of this command on"
        " this machine, which share its GPUs.",
        least=1,
    )
    use_tpu: bool = option(False, "Run on a TPU; the same as --distribution=tpu.")
    tpu_name: str | None = option(
        None, "Name of the Cloud TPU, its grpc:// address, or `local`."
    )
    tpu_zone: str | None = option(
        None, "GCE zone of the TPU. Default: from the machine's metadata."
    )
    gcp_project: str | None = option(
        None, "Project of the TPU. Default: from the machine's metadata."
    )
    master: str | None = option(
        None,
        "TensorFlow master URL: the address of the TPU, if there is no --tpu_name.",
    )
    num_tpu_cores: int = option(
        8, "Number of TPU cores; it is an error if the TPU has another number.", least=1
    )

    def problems(self) -> Iterator[str]:
        """Yields a problem if `use_tpu` has another `distribution`."""
        yield from super().problems()
        if self.use_tpu and self.distribution not in ("default", "tpu"):
            yield (
                f"`use_tpu` and `distribution={self.distribution}` contradict each"
                " other: give one of them."
            )
        if self.local_workers > 1 and self.distribution != "multi_worker":
            yield (
                f"`local_workers={self.local_workers}` needs"
                " `distribution=multi_worker`."
            )


class SourceOptions(Options, title=options.MODEL, decides="numbers"):
    """A trained model, by its checkpoint and what it may lack."""

    backend: str | None = options.with_default(DeviceOptions, "backend", None)
    checkpoint: str = option(
        REQUIRED,
        "A run's output_dir, a checkpoint in it, a TF1 release, a Hugging Face folder,"
        " or a KerasHub preset, with its vocabulary.",
        path=Path.CHECKPOINT,
    )
    bert_config_file: str | None = options.with_default(
        ModelOptions, "bert_config_file", None
    )
    vocab_file: str | None = options.with_default(ModelOptions, "vocab_file", None)
    do_lower_case: bool | None = option(
        None,
        "Whether to lower-case the text. Default: the checkpoint's setting, or what"
        " its vocabulary implies; else true.",
    )
