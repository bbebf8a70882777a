"""The flags of extract_features, in groups."""

from typing import Any

from absl import flags

from bert_tf import flag_rules, path_flags
from bert_tf import flags as shared_flags
from bert_tf.flag_groups import DATA, DEVICES, RESULTS, TASK, belongs_to
from bert_tf.path_flags import Path


@belongs_to(DATA)
def define_files(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the input, the output, and the model."""

    def string(name: str, help_text: str) -> None:
        flags.DEFINE_string(name, None, help_text, flag_values=flag_values)

    def path(name: str, help_text: str, kind: Path) -> None:
        path_flags.define(name, None, help_text, kind, flag_values=flag_values)

    path(
        "input_file",
        "A text a line, or two with ' ||| ' between them; may be compressed (.gz, .bz2,"
        " .xz).",
        Path.FILE,
    )
    path("output_file", "What is written.", Path.OUTPUT)
    path(
        "init_checkpoint",
        "The model: a released TF1 checkpoint (.../bert_model.ckpt), an output_dir of"
        " bert_tf, a Hugging Face folder, or a KerasHub preset. Its config, vocabulary"
        " and casing come along.",
        Path.CHECKPOINT,
    )
    for name in ("input_file", "output_file", "init_checkpoint"):
        flags.mark_flag_as_required(name, flag_values)
    shared_flags.define(flag_values, "bert_config_file", "vocab_file", "do_lower_case")


@belongs_to(TASK)
def define_vectors(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say which vectors there are."""
    flags.DEFINE_list(
        "layers",
        ["-1", "-2", "-3", "-4"],
        "Layers whose outputs are taken: 0 is the first one, -1 the last one. Also"
        " `embeddings`, what goes into the first one, and `all`.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "combine",
        "none",
        ["none", "sum", "mean", "weighted", "concat"],
        "What is made of a token's layers: nothing, their sum, mean, weighted sum"
        " (--layer_weights), or all of them one after another.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "layer_weights",
        [],
        "For --combine=weighted. A number for each layer of --layers.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "token_vectors",
        True,
        "Whether tokens, or words, have vectors; else only --sentence_vectors.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "sentence_vectors",
        [],
        "Vectors of a whole line, with commas between: the pooler's output"
        " (pooled), that of [CLS] (cls), the mean over its tokens, [CLS] and [SEP]"
        " included (mean).",
        flag_values=flag_values,
    )
    flags.register_validator(
        "sentence_vectors",
        lambda names: set(names) <= {"pooled", "cls", "mean"},
        message="must be of pooled, cls, mean",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "words",
        None,
        ["first", "mean"],
        "A vector for each word between white space, and none for [CLS] and"
        " [SEP]: that of its first piece, or the mean of its pieces'.",
        flag_values=flag_values,
    )

    def some_vector(values: dict[str, Any]) -> bool:
        if values["token_vectors"] or values["sentence_vectors"]:
            return True
        raise flags.ValidationError("--notoken_vectors needs --sentence_vectors.")

    def has_a_use(values: dict[str, Any]) -> bool:
        if values["token_vectors"] or not values["words"]:
            return True
        raise flags.ValidationError("--words is for token vectors alone.")

    names = ["token_vectors", "sentence_vectors"]
    flags.register_multi_flags_validator(names, some_vector, flag_values=flag_values)
    names = ["token_vectors", "words"]
    flags.register_multi_flags_validator(names, has_a_use, flag_values=flag_values)


@belongs_to(RESULTS)
def define_storage(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how vectors are written."""
    flags.DEFINE_enum(
        "format",
        "jsonl",
        ["jsonl", "npz"],
        "jsonl: the original's JSON lines; npz: arrays in one file.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "vector_type",
        "float32",
        ["float32", "float16"],
        "For --format=npz. The numbers that are stored.",
        flag_values=flag_values,
    )

    def can_store(values: dict[str, Any]) -> bool:
        if values["vector_type"] == "float32" or values["format"] == "npz":
            return True
        raise flags.ValidationError(
            f"--vector_type={values['vector_type']} is for --format=npz."
        )

    names = ["vector_type", "format"]
    flags.register_multi_flags_validator(names, can_store, flag_values=flag_values)


@belongs_to(DEVICES)
def define_running(flag_values: flags.FlagValues) -> None:
    """Defines the flags that say how, and where, the model runs."""
    shared_flags.define(flag_values, "max_seq_length")
    flags.DEFINE_integer(
        "batch_size",
        32,
        "Lines that the model is given at once, over all devices.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "use_one_hot_embeddings",
        False,
        "Taken, and without effect: a lookup gives the same numbers.",
        flag_values=flag_values,
    )
    shared_flags.define(
        flag_values,
        "precision",
        "jit_compile",
        "distribution",
        "use_tpu",
        "tpu_name",
        "tpu_zone",
        "gcp_project",
        "master",
        "num_tpu_cores",
    )
    flag_rules.require_at_least(flag_values, 1, "num_tpu_cores")
