"""The table of BERT's weights with all their names, and the table of heads.

Import and export read both. A weight's row has the original's name, the weight's shape
there, and its other names. Arrays are converted by three rules, without exceptions:

- Hugging Face stores a dense layer's kernel as [outputs, inputs]: if the original's
  name ends in `kernel`, the array is transposed. `output_weights` are [outputs, inputs]
  in the original too.
- KerasHub splits the hidden size of attention's weights by heads, [H, A, H / A]: the
  same numbers in the same order, so the array is reshaped.
- KerasHub's classifier has a kernel, [inputs, outputs], where the original has
  output_weights: its row says so.

KerasHub's files do not name weights. Keras numbers a model's layers by class and a
layer's variables in their order: the first layer's query is at
layers/transformer_encoder/_self_attention_layer/query_dense/vars/0, its bias at vars/1.

The original has no heads for multiple choice and tagging; their names here follow its
`cls/squad`.

Layers that share their weights have the names of ALBERT's original checkpoints, as has
the layer from embeddings of another size to the encoder. ELECTRA's discriminator has
BERT's names; its head and generator have ELECTRA's, below `cls/`: see `electra_name`.

Shapes: V vocabulary, P positions, T segment types, E embedding, H hidden, F
feed-forward, C labels (of a classifier or a tagger).
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bert_tf.base.addons import imported
from bert_tf.base.config import BertConfig


@dataclasses.dataclass(frozen=True)
class Name:
    """A weight's names; `{}` stands for the number of the layer."""

    original: str  # in the original's checkpoints, and in ours
    shape: str  # dimensions in the original, as letters or numbers
    hugging_face: str  # for the encoder, without the leading `bert.`
    keras_hub: str | None = None  # its place in KerasHub's files, if any
    keras_hub_transposes: bool = False  # whether KerasHub's array is transposed

    def dimensions(self, config: BertConfig) -> tuple:
        """Returns the shape in a model; None for the number of labels."""
        sizes = {
            "V": config.vocab_size,
            "P": config.max_position_embeddings,
            "T": config.type_vocab_size,
            "E": config.embedding_width,
            "H": config.hidden_size,
            "F": config.intermediate_size,
            "C": None,
        }
        return tuple(
            sizes[letter] if letter in sizes else int(letter)
            for letter in self.shape.split()
        )

    def at(self, layer: int) -> "Name":
        """Returns the names in one layer."""
        return dataclasses.replace(
            self,
            original=self.original.format(layer),
            hugging_face=self.hugging_face.format(layer),
            # The first layer of a class has no number.
            keras_hub=self.keras_hub
            and self.keras_hub.format(f"_{layer}" if layer else ""),
        )


# Below: tf is the original's name, hf Hugging Face's, hub KerasHub's place.


def _dense(tf: str, shape: str, hf: str, hub: str | None = None) -> list[Name]:
    kernel, bias = (f"{hub}/vars/0", f"{hub}/vars/1") if hub else (None, None)
    return [
        Name(f"{tf}/kernel", shape, f"{hf}.weight", kernel),
        Name(f"{tf}/bias", shape.split()[1], f"{hf}.bias", bias),
    ]


def _layer_norm(tf: str, hf: str, hub: str, size: str = "H") -> list[Name]:
    return [
        Name(f"{tf}/LayerNorm/gamma", size, f"{hf}.LayerNorm.weight", f"{hub}/vars/0"),
        Name(f"{tf}/LayerNorm/beta", size, f"{hf}.LayerNorm.bias", f"{hub}/vars/1"),
    ]


def _scores(tf: str, num: str, hf: str, hub: str | None = None) -> list[Name]:
    """Returns a linear layer whose kernel is [outputs, inputs] in the original."""
    kernel, bias = (f"{hub}/vars/0", f"{hub}/vars/1") if hub else (None, None)
    return [
        Name(f"{tf}output_weights", f"{num} H", f"{hf}.weight", kernel, bool(hub)),
        Name(f"{tf}output_bias", num, f"{hf}.bias", bias),
    ]


EMBEDDINGS = (
    *(
        Name(
            f"bert/embeddings/{table}",
            shape,
            f"embeddings.{table}.weight",
            f"layers/{place}/vars/0",
        )
        for table, shape, place in (
            ("word_embeddings", "V E", "reversible_embedding"),
            ("token_type_embeddings", "T E", "embedding"),
            ("position_embeddings", "P E", "position_embedding"),
        )
    ),
    *_layer_norm("bert/embeddings", "embeddings", "layers/layer_normalization", "E"),
)
_MAPPING_IN = "encoder/embedding_hidden_mapping_in"
MAPPING_IN = tuple(_dense(f"bert/{_MAPPING_IN}", "E H", _MAPPING_IN.replace("/", ".")))


def _in_layer(
    kind: Callable[..., list[Name]], path: str, place: str, *shape: str
) -> list[Name]:
    """Returns names in every layer: Hugging Face's path has dots for slashes."""
    return kind(
        f"bert/encoder/layer_{{}}/{path}",
        *shape,
        f"encoder.layer.{{}}.{path.replace('/', '.')}",
        f"layers/transformer_encoder{{}}/{place}",
    )


_ATTENTION = "_self_attention_layer"
LAYER = (
    *_in_layer(_dense, "attention/self/query", f"{_ATTENTION}/query_dense", "H H"),
    *_in_layer(_dense, "attention/self/key", f"{_ATTENTION}/key_dense", "H H"),
    *_in_layer(_dense, "attention/self/value", f"{_ATTENTION}/value_dense", "H H"),
    *_in_layer(_dense, "attention/output/dense", f"{_ATTENTION}/output_dense", "H H"),
    *_in_layer(_layer_norm, "attention/output", f"{_ATTENTION}_norm"),
    *_in_layer(_dense, "intermediate/dense", "_feedforward_intermediate_dense", "H F"),
    *_in_layer(_dense, "output/dense", "_feedforward_output_dense", "F H"),
    *_in_layer(_layer_norm, "output", "_feedforward_layer_norm"),
)

# Of the tokens that attend to all others: `global_tokens`.
GLOBAL = tuple(
    row
    for part in ("query_global", "key_global", "value_global")
    for row in _dense(
        f"bert/encoder/layer_{{}}/attention/self/{part}",
        "H H",
        f"encoder.layer.{{}}.attention.self.{part}",
    )
)

_SHARED = "bert/encoder/transformer/group_0/inner_group_0"
_SHARED_THERE = "encoder.albert_layer_groups.0.albert_layers.0"
SHARED_LAYER = (
    *(
        row
        for path, shape, theirs in (
            ("attention_1/self/query", "H H", "attention.query"),
            ("attention_1/self/key", "H H", "attention.key"),
            ("attention_1/self/value", "H H", "attention.value"),
            ("attention_1/output/dense", "H H", "attention.dense"),
            ("ffn_1/intermediate/dense", "H F", "ffn"),
            ("ffn_1/intermediate/output/dense", "F H", "ffn_output"),
        )
        for row in _dense(f"{_SHARED}/{path}", shape, f"{_SHARED_THERE}.{theirs}")
    ),
    *(
        Name(f"{_SHARED}/{path}", "H", f"{_SHARED_THERE}.{theirs}")
        for path, theirs in (
            ("LayerNorm/gamma", "attention.LayerNorm.weight"),
            ("LayerNorm/beta", "attention.LayerNorm.bias"),
            ("LayerNorm_1/gamma", "full_layer_layer_norm.weight"),
            ("LayerNorm_1/beta", "full_layer_layer_norm.bias"),
        )
    ),
)

POOLER = tuple(_dense("bert/pooler/dense", "H H", "pooler.dense", "layers/dense"))

# Heads, by name. All that belongs to one head is in its row below, and only there.
MASKED_LM, NEXT_SENTENCE = "masked LM", "next sentence prediction"
REPLACED_TOKENS = "replaced tokens"
CLASSIFIER, SPAN = "classifier", "span"
MULTIPLE_CHOICE, TAGGING = "multiple choice", "tagging"
# The head for vectors of texts; it has no weights and so no row below.
EMBEDDING = "embedding"
# Added to a classifier that reads all windows of a text at once.
WINDOWS = "window attention"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """A head, and the code that belongs to it.

    Code is given as "package.module:name", and imported when used: this table is read
    before TensorFlow is imported.
    """

    name: str
    weights: tuple[Name, ...]
    is_pooled: bool = False  # whether it scores the pooled output, not each token
    has_choices: bool = False  # whether an example has several sequences, [B, N, S]
    word: str | None = None  # for export_model's `heads`; None: goes with another head
    model: str | None = None  # its class, or a function: (source, **options) -> a model
    objective: str | None = None  # its Objective; for classifiers, by problem type
    task: str | None = None  # the FineTuningTask that trains it
    text_model: str | None = None  # the class that `bert_tf.load` returns
    reader: str | None = None  # the class that reads its rows for `predict`
    server: str | None = None  # the class of its SavedModel
    onnx: str | None = None  # a function that adds its outputs to a ModelGraph
    hugging_face: tuple[str, ...] = ()  # its classes in transformers
    keras_hub: tuple[str, ...] = ()  # its tasks in KerasHub

    def code(self, field: str) -> Any:
        """Returns the object that a field names, such as "task"; None if it is None."""
        path = getattr(self, field)
        return None if path is None else imported(path)

    @property
    def has_labels(self) -> bool:
        """Whether the head has one output per label."""
        return any("C" in row.shape.split() for row in self.weights)


# Name -> head, in the order of messages.
HEADS: dict[str, Head] = {}


def register(head: Head) -> None:
    """Adds a head of your own to the table, before a checkpoint with it is opened.

    Raises:
        ValueError: the name is taken.
    """
    if head.name in HEADS:
        raise ValueError(f"`name` must be new. Received: {head.name!r}")
    HEADS[head.name] = head


_TRANSFORM = "cls/predictions/transform"
# The masked LM's output matrix, where it is not the word embeddings.
UNTIED = "cls/predictions/output_weights"
_DISCRIMINATOR, _LAST = "discriminator_predictions", "dense_prediction"
_LOADING, _SERVING = "bert_tf.conversion.loading", "bert_tf.addons.serving.saved_model"
_HEADS = "bert_tf.modeling.heads"
_OBJECTIVES, _TASKS = "bert_tf.modeling.objectives", "bert_tf.tasks"
_TEXT_MODELS = "bert_tf.addons.serving.text_models"
_READERS = "bert_tf.addons.serving.predict"
_ONNX = "bert_tf.addons.serving.onnx_graph:ModelGraph"
# Models of transformers with the same heads; others are in add-ons.
_THEIRS = ("Bert", "Albert", "Electra")
for _head in (
    Head(
        name=MASKED_LM,
        word="masked_lm",
        weights=(
            *_dense(
                f"{_TRANSFORM}/dense",
                "H E",
                "cls.predictions.transform.dense",
                "layers/masked_lm_head/_intermediate_dense",
            ),
            *_layer_norm(
                _TRANSFORM,
                "cls.predictions.transform",
                "layers/masked_lm_head/_intermediate_layer_norm",
                "E",
            ),
            Name(
                "cls/predictions/output_bias",
                "V",
                "cls.predictions.bias",
                "layers/masked_lm_head/vars/0",
            ),
            Name(UNTIED, "V E", "cls.predictions.decoder.weight"),
        ),
        model=f"{_LOADING}:load_pretrainer",
        objective=f"{_OBJECTIVES}:MASKED_LM",
        server=f"{_SERVING}:ServedFillMask",
        onnx=f"{_ONNX}.masked_lm",
        text_model=f"{_TEXT_MODELS}.mask_filler:MaskFiller",
        hugging_face=(
            "BertForPreTraining",
            "BertForMaskedLM",
            "BertLMHeadModel",
            "AlbertForPreTraining",
            "AlbertForMaskedLM",
        ),
        keras_hub=("BertMaskedLM",),
    ),
    Head(
        name=NEXT_SENTENCE,
        word="next_sentence",
        weights=tuple(_scores("cls/seq_relationship/", "2", "cls.seq_relationship")),
        is_pooled=True,
        objective=f"{_OBJECTIVES}:NEXT_SENTENCE",
        onnx=f"{_ONNX}.next_sentence",
        hugging_face=(
            "BertForPreTraining",
            "BertForNextSentencePrediction",
            "AlbertForPreTraining",
        ),
    ),
    Head(
        name=CLASSIFIER,
        word="classifier",
        weights=tuple(_scores("", "C", "classifier", "layers/dense")),
        is_pooled=True,
        model=f"{_LOADING}:load_classifier",
        objective=f"{_OBJECTIVES}:CLASSIFIERS",
        task=f"{_TASKS}.classification:ClassificationTask",
        server=f"{_SERVING}:ServedClassifier",
        onnx=f"{_ONNX}.classifier",
        text_model=f"{_TEXT_MODELS}.classifier:TextClassifier",
        reader=f"{_READERS}:TextReader",
        hugging_face=tuple(f"{model}ForSequenceClassification" for model in _THEIRS),
        # The second is the older name.
        keras_hub=("BertTextClassifier", "BertClassifier"),
    ),
    Head(
        name=SPAN,
        word="span",
        weights=tuple(_scores("cls/squad/", "2", "qa_outputs")),
        model=f"{_HEADS}:BertSpanPredictor",
        objective=f"{_OBJECTIVES}:SPAN",
        task=f"{_TASKS}.squad.spans:SquadTask",
        server=f"{_SERVING}:ServedSpanPredictor",
        onnx=f"{_ONNX}.span",
        text_model=f"{_TEXT_MODELS}.question_answerer:QuestionAnswerer",
        reader=f"{_READERS}:QuestionReader",
        hugging_face=tuple(f"{model}ForQuestionAnswering" for model in _THEIRS),
    ),
    Head(
        name=MULTIPLE_CHOICE,
        word="multiple_choice",
        weights=tuple(_scores("cls/multiple_choice/", "1", "classifier")),
        is_pooled=True,
        has_choices=True,
        model=f"{_HEADS}:BertMultipleChoice",
        objective=f"{_OBJECTIVES}:CLASSIFICATION",
        task=f"{_TASKS}.swag.multiple_choice:ChoiceTask",
        server=f"{_SERVING}:ServedMultipleChoice",
        onnx=f"{_ONNX}.multiple_choice",
        text_model=f"{_TEXT_MODELS}.classifier:ChoiceModel",
        reader=f"{_READERS}:ChoiceReader",
        hugging_face=("BertForMultipleChoice", "AlbertForMultipleChoice"),
    ),
    Head(
        name=TAGGING,
        word="tagging",
        weights=tuple(_scores("cls/tagging/", "C", "classifier")),
        model=f"{_LOADING}:load_tagger",
        objective=f"{_OBJECTIVES}:TAGGING",
        task=f"{_TASKS}.tagging.words:TaggingTask",
        server=f"{_SERVING}:ServedTagger",
        onnx=f"{_ONNX}.tagging",
        text_model=f"{_TEXT_MODELS}.word_tagger:WordTagger",
        reader=f"{_READERS}:WordReader",
        hugging_face=tuple(f"{model}ForTokenClassification" for model in _THEIRS),
    ),
    Head(
        name=WINDOWS,
        weights=(Name("cls/window_attention/query", "H", "window_attention.query"),),
    ),
    Head(
        name=REPLACED_TOKENS,
        word="replaced_tokens",
        weights=(
            *_dense(f"cls/{_DISCRIMINATOR}/dense", "H H", f"{_DISCRIMINATOR}.dense"),
            *_dense(
                f"cls/{_DISCRIMINATOR}/dense_1", "H 1", f"{_DISCRIMINATOR}.{_LAST}"
            ),
        ),
        onnx=f"{_ONNX}.replaced_tokens",
        hugging_face=("ElectraForPreTraining",),
    ),
):
    register(_head)

# Prefixes of ELECTRA's names in our checkpoints -> in its own; the first match counts.
_ELECTRA = {
    "bert/encoder/embedding_hidden_mapping_in/": "electra/embeddings_project/",
    "bert/": "electra/",
    "cls/generator/encoder/embedding_hidden_mapping_in/": (
        "generator/embeddings_project/"
    ),
    "cls/generator/": "generator/",
    "cls/generator_predictions/output_bias": "generator_predictions/output_bias",
    "cls/generator_predictions/transform/": "generator_predictions/",
    "cls/discriminator_predictions/": "discriminator_predictions/",
}


def electra_name(ours: str) -> str:
    """Returns a weight's name in ELECTRA's original checkpoints."""
    return replace_prefix(ours, _ELECTRA)


def name_of_electra(theirs: str) -> str:
    """Returns our name for a weight in ELECTRA's original checkpoints."""
    return replace_prefix(theirs, {there: here for here, there in _ELECTRA.items()})


def replace_prefix(name: str, prefixes: Mapping[str, str]) -> str:
    """Returns a name with the first matching prefix replaced."""
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def is_electra(config: BertConfig, heads: Iterable[str]) -> bool:
    """Whether a model is an ELECTRA, rather than a BERT or an ALBERT."""
    differs = config.embedding_width != config.hidden_size
    differs = differs or config.pooler_hidden_act != "tanh"
    return not config.shares_layers and (REPLACED_TOKENS in heads or differs)


def is_of_a_generator(name: str) -> bool:
    """Whether a weight is of ELECTRA's generator, which only pre-training uses."""
    return name.startswith(("cls/generator/", "cls/generator_predictions/"))


# Weights with one row, or one number, per token.
OF_VOCABULARY = (
    "bert/embeddings/word_embeddings",
    "cls/predictions/output_bias",
    UNTIED,
    "cls/generator_predictions/output_bias",
)

# Prefix for tensors of an unknown head, from another program.
FOREIGN = "unknown head/"


def is_known(name: str) -> bool:
    """Whether BERT, ALBERT or ELECTRA of some size has a weight of this name."""
    rows = (
        *(*EMBEDDINGS, *MAPPING_IN, *LAYER, *GLOBAL, *SHARED_LAYER, *POOLER),
        *(row for head in HEADS.values() for row in head.weights),
    )
    general = re.sub(r"/layer_\d+/", "/layer_{}/", name)
    return is_of_a_generator(name) or any(row.original == general for row in rows)


def has_global(names: Iterable[str]) -> bool:
    """Whether there are projections of global tokens, which a model may not use."""
    return any("_global" in name for name in names)


def encoder_names(config: BertConfig, with_global: bool = False) -> Iterator[Name]:
    """Yields the encoder's weights without the pooler, in network order."""
    yield from EMBEDDINGS
    if config.embedding_width != config.hidden_size:
        yield from MAPPING_IN
    if config.shares_layers:
        yield from SHARED_LAYER
        return
    for layer in range(config.num_hidden_layers):
        for name in LAYER + GLOBAL * (with_global or bool(config.global_tokens)):
            yield name.at(layer)


def heads_of(names: Iterable[str]) -> list[str]:
    """Returns the heads, of HEADS, with weights among the original's names."""
    there = set(names)
    return [
        head.name
        for head in HEADS.values()
        if any(row.original in there for row in head.weights)
    ]


def window_pooling(weights: Iterable[str]) -> str | None:
    """Returns the `window_pooling` of a BertClassifier with these weights."""
    return "attention" if WINDOWS in heads_of(weights) else None


def head_names(head: str | None, config: BertConfig) -> list[Name]:
    """Returns the rows of a head's weights in a model; none for no head."""
    rows = HEADS[head].weights if head else ()
    return [x for x in rows if x.original != UNTIED or not config.tie_word_embeddings]


def names_of(config: BertConfig, names: Iterable[str]) -> list[Name]:
    """Returns all rows that a model with these weights should have."""
    there = set(names)
    rows = list(encoder_names(config, has_global(there)))
    if any(row.original in there for row in POOLER):
        rows += POOLER
    for head in heads_of(there):
        rows += head_names(head, config)
    return rows
