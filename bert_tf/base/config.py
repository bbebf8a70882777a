"""BertConfig: the original's bert_config.json, and the sizes that Google released."""

import dataclasses
import difflib
import itertools
import json
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import InputError

# Constants of the model that the original fixes in its code rather than its config.
LAYER_NORM_EPSILON = 1e-12
CLASSIFIER_DROPOUT = 0.1
ATTENTION_MASK_PENALTY = -10000.0

# ELECTRA's constants (Clark et al. 2020): the generator's share of the width, and the
# weight of the discriminator's loss relative to the masked LM's.
GENERATOR_SIZE = 0.25
DISCRIMINATOR_WEIGHT = 50.0

# A classifier predicts one of its labels, numbers, or any number of its labels. The
# values are the same as in Hugging Face's `problem_type`.
SINGLE_LABEL = "single_label_classification"
REGRESSION = "regression"
MULTI_LABEL = "multi_label_classification"
PROBLEM_TYPES = (SINGLE_LABEL, REGRESSION, MULTI_LABEL)

# "gelu" is the original's tanh approximation; "gelu_erf" the exact one (Hugging Face's
# "gelu").
HIDDEN_ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# Fields that BERT's files lack, but ALBERT's albert_config.json has.
ALBERT_FIELDS = ("embedding_size", "num_hidden_groups", "inner_group_num")

# Keys of released configs that the original's code never reads (the Chinese and
# multilingual releases, google-research/bert issue 82; ALBERT's releases).
_KNOWN_AND_UNUSED = frozenset(
    {
        "down_scale_factor",
        "gap_size",
        "layers_to_keep",
        "net_structure_type",
        "num_memory_blocks",
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)

RELEASED_VOCAB_SIZE = 30522

# Ids and positions are int32.
_LARGEST_SIZE = 2**31 - 1

# name -> (layers, hidden size). Heads are hidden / 64, intermediate is 4 * hidden.
_NAMED_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
    **{
        f"L-{layers}_H-{hidden}": (layers, hidden)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    },
}
SIZE_NAMES = tuple(_NAMED_SIZES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The architecture of a BERT model, under the original's names and defaults.

    Attributes:
        vocab_size: number of WordPiece tokens.
        hidden_size: width of the encoder; a multiple of `num_attention_heads`.
        num_hidden_layers: number of Transformer layers.
        num_attention_heads: heads per layer.
        intermediate_size: width of the feed-forward layer.
        hidden_act: one of HIDDEN_ACTIVATIONS.
        hidden_dropout_prob: dropout of embeddings, attention output and layer output.
        attention_probs_dropout_prob: dropout of the attention probabilities.
        max_position_embeddings: length of the longest sequence.
        type_vocab_size: number of segment ids (2 in every release, 16 by default).
        initializer_range: standard deviation of the truncated normal initializer.
        left_to_right: whether a token sees only itself and earlier ones, the
            ablation "LTR" of section 5.1.
        right_to_left: whether a token sees only itself and later ones.
        bilstm: whether a bidirectional LSTM is on top of the encoder, as in the
            ablation "+ BiLSTM" of section 5.1.
        cls_normalization: whether the pooled output is standardized, by a mean and a
            deviation that training does not change (Zhou et al. 2019).
        layer_norm_eps: the number that layer normalization adds to the variance; 1e-12
            in the original's code.
        masked_lm_hidden_act: the activation in the masked LM's head; None for
            `hidden_act`. KerasHub's head and encoder have different ones.
        masked_lm_layer_norm_eps: likewise; None for `layer_norm_eps`.
        tie_word_embeddings: whether the masked LM's scores use the word embeddings.
        pooler_hidden_act: the activation of the pooler, "tanh" in BERT; the classifiers
            of ELECTRA and DistilBERT in transformers have other ones.
        embedding_size: width of the embeddings; if it is not `hidden_size`, a dense
            layer maps them to the encoder (Lan et al. 2019, "ALBERT", section 3.1).
            None for `hidden_size`.
        num_hidden_groups: 1 if all layers share one layer's weights, as in ALBERT; None
            if each has its own. Needs `embedding_size`.
        inner_group_num: 1 or None: number of layers in the shared one.
        attention_window: how far away a token sees others, to each side (Beltagy et al.
            2020, "Longformer"; transformers' number is twice as large); None for any
            distance.
        global_tokens: how many of the first text's first tokens see all others and are
            seen by all, by projections of their own: 1 for [CLS]. Needs
            `attention_window`.

    The original's files lack the attributes from `left_to_right` on; ours have them
    only if they differ from the original's constants.

    Raises:
        ValueError: a value is out of its range.

    Examples:
        >>> config = bert_tf.BertConfig(vocab_size=9, hidden_size=24)
        >>> config.num_hidden_layers
        12
        >>> bert_tf.BertConfig(**config.to_dict()) == config
        True
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02
    left_to_right: bool = False
    right_to_left: bool = False
    bilstm: bool = False
    cls_normalization: bool = False
    layer_norm_eps: float = LAYER_NORM_EPSILON
    masked_lm_hidden_act: str | None = None
    masked_lm_layer_norm_eps: float | None = None
    tie_word_embeddings: bool = True
    pooler_hidden_act: str = "tanh"
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    inner_group_num: int | None = None
    attention_window: int | None = None
    global_tokens: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check(field.name, getattr(self, field.name), field.type)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "`hidden_size` must be a multiple of `num_attention_heads`. "
                f"Received: {self.hidden_size} and {self.num_attention_heads}"
            )
        if self.shares_layers and self.embedding_size is None:
            raise ValueError(
                "`embedding_size` must be given with `num_hidden_groups`: its default"
                " in ALBERT's files differs from BERT's."
            )
        if self.attention_window is None and self.global_tokens is not None:
            raise ValueError("`global_tokens` needs `attention_window`.")
        if self.attention_window and (self.shares_layers or not self.is_bidirectional):
            raise ValueError(
                "`attention_window` is not for layers that share their weights"
                " (`num_hidden_groups`), nor for one direction."
            )
        if self.left_to_right and self.right_to_left:
            raise ValueError("`left_to_right` and `right_to_left` exclude each other.")
        if self.bilstm and self.hidden_size % 2:
            raise ValueError(
                "`bilstm` needs an even width, half of it for each direction. Received:"
                f" {self.hidden_size}"
            )

    @property
    def embedding_width(self) -> int:
        """The width of the embeddings: `embedding_size`, or else `hidden_size`."""
        return self.embedding_size or self.hidden_size

    @property
    def shares_layers(self) -> bool:
        """Whether all layers have the same weights, as ALBERT's do."""
        return self.num_hidden_groups is not None

    @property
    def is_bidirectional(self) -> bool:
        """Whether a token sees both sides, as a masked LM needs."""
        return not (self.left_to_right or self.right_to_left)

    def _check(self, name: str, value: Any, kind: Any) -> None:
        """Raises ValueError if a field's value is out of its range."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None and kind in (float | None, str | None, int | None):
            return
        if name in ("num_hidden_groups", "inner_group_num"):
            is_right = type(value) is int and value == 1
            wanted = "1, as in all releases"
        elif kind in (int, int | None):
            is_right = type(value) is int and 1 <= value <= _LARGEST_SIZE
            wanted = "a positive integer, below 2**31"
        elif kind is bool:
            is_right, wanted = isinstance(value, bool), "true or false"
        elif name.endswith("hidden_act"):
            is_right = value in HIDDEN_ACTIVATIONS
            wanted = f"one of {', '.join(HIDDEN_ACTIVATIONS)}"
        elif not is_number:
            is_right, wanted = False, "a number"
        elif name.endswith("_prob"):
            is_right, wanted = 0.0 <= value < 1.0, "in [0, 1)"
        else:
            is_right = 0.0 < value <= sys.float_info.max
            wanted = "positive and finite"
        if not is_right:
            raise ValueError(f"`{name}` must be {wanted}. Received: {value!r}")

    @classmethod
    def from_size(
        cls, size: str, *, vocab_size: int = RELEASED_VOCAB_SIZE, **overrides: Any
    ) -> "BertConfig":
        """Returns the config of a released size.

        Args:
            size: "base", "large", "tiny", "mini", "small", "medium", or one of the 24
                miniatures as "L-4_H-256" (layers 2 to 12, hidden 128 to 768).
            vocab_size: number of WordPiece tokens; the released uncased one by default.
            **overrides: any other field.

        Raises:
            ValueError: there is no such size.
        """
        if size not in _NAMED_SIZES:
            near = difflib.get_close_matches(size, _NAMED_SIZES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"`size` must be one of {', '.join(_NAMED_SIZES)}. Received: {size!r}."
                + hint
            )
        num_layers, hidden_size = _NAMED_SIZES[size]
        return cls(
            **{
                "vocab_size": vocab_size,
                "hidden_size": hidden_size,
                "num_hidden_layers": num_layers,
                "num_attention_heads": hidden_size // 64,
                "intermediate_size": 4 * hidden_size,
                "type_vocab_size": 2,
                **overrides,
            }
        )

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], source: str = "bert_config"
    ) -> "BertConfig":
        """Returns a config from the keys and values of a bert_config.json.

        Args:
            values: the JSON object. Unknown keys are named in a warning.
            source: where the values come from, for messages.

        Raises:
            InputError: `vocab_size` is missing, a value is out of its range, or an
                unknown key is a near miss of a real one.
        """
        if values.get("second_encoder"):
            raise InputError(
                f"{source}: a model of two encoders, which this version does not read."
                " Train it again by bert_tf.addons.study.two_encoders."
            )
        fields = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(fields) - _KNOWN_AND_UNUSED)
        for key in unknown:
            # 0.8: one or two letters differ, or a word's ending; keys like "model_type"
            # are far below it.
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.8)
            if near:
                raise InputError(
                    f"{source}: unknown key {key!r}; did you mean {near[0]!r}?"
                )
        if unknown:
            warnings.warn(
                f"{source}: ignored unknown keys: {', '.join(unknown)}", stacklevel=2
            )
        if "vocab_size" not in values:
            raise InputError(f"{source}: `vocab_size` is missing.")
        known = {key: values[key] for key in fields if key in values}
        # The original accepts any case, and an empty string for no activation.
        activation = known.get("hidden_act", "gelu")
        if activation is None or isinstance(activation, str):
            known["hidden_act"] = (activation or "linear").lower()
        try:
            return cls(**known)
        except ValueError as error:
            raise InputError(f"{source}: {error}") from error

    @classmethod
    def from_json_file(cls, path: str) -> "BertConfig":
        """Returns the config in a bert_config.json.

        Raises:
            InputError: no such file, not a JSON object, or as `from_dict`.
        """
        return cls.from_dict(files.read_object(path, "BERT config file"), source=path)

    def check_sequences(self, max_seq_length: int, num_segments: int = 1) -> None:
        """Raises InputError if the model has too few positions or segments."""
        if max_seq_length > self.max_position_embeddings:
            raise InputError(
                f"`max_seq_length={max_seq_length}` must not exceed the model's"
                f" max_position_embeddings ({self.max_position_embeddings}). Give less."
            )
        if num_segments > self.type_vocab_size:
            raise InputError(
                f"The model has {self.type_vocab_size} segment (`type_vocab_size`), and"
                f" pairs of texts need {num_segments}: give single texts."
            )

    def check_vocabulary(self, num_tokens: int, source: str) -> None:
        """Raises InputError if a vocabulary has ids outside the embedding table."""
        if num_tokens > self.vocab_size:
            raise InputError(
                f"{source} has {num_tokens} tokens, but the model's `vocab_size` is"
                f" {self.vocab_size}. Give the vocabulary and the config of the same"
                " model."
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, as in bert_config.json."""
        values = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {n: x for n, x in values if n not in _OURS or x != _OURS[n]}

    def beyond_the_original(self) -> dict[str, Any]:
        """Returns the fields whose values the original's code does not know."""
        values = {name: x for name, x in self.to_dict().items() if name in _OURS}
        if self.shares_layers:  # ALBERT's code computes these
            values = {n: x for n, x in values.items() if n not in ALBERT_FIELDS}
        for name in ("hidden_act", "layer_norm_eps"):
            if values.get(f"masked_lm_{name}") == getattr(self, name):
                del values[f"masked_lm_{name}"]
        if self.hidden_act == "gelu_erf":
            values["hidden_act"] = self.hidden_act
        return values

    def to_json_string(self) -> str:
        """Returns the text of bert_config.json, as the original's: with sorted keys."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


# The fields that the original's files lack, and its constants for them.
_FIELDS = {field.name: field.default for field in dataclasses.fields(BertConfig)}
_OURS = dict(itertools.dropwhile(lambda x: x[0] != "left_to_right", _FIELDS.items()))
ORIGINAL_FIELDS = tuple(name for name in _FIELDS if name not in _OURS)
