"""ONNX models, built from a checkpoint's weights in the form that runtimes fuse.

Inputs, int64, under transformers' names; for multiple choice [B, N, S]:

    input_ids, attention_mask, token_type_ids [B, S]

Outputs, float32, also under transformers' names:

    features           last_hidden_state [B, S, H], pooler_output [B, H] with a pooler,
                       sentence_embedding [B, H] of a model of sentence-transformers
    classifier         logits [B, C]
    multiple choice    logits [B, N]
    tagging            logits [B, S, C]
    span               start_logits, end_logits [B, S]
    masked LM          logits [B, S, V]; with next sentence prediction
                       prediction_logits, seq_relationship_logits [B, 2]
    replaced tokens    logits [B, S]

B, N and S are free. Opset 17 has LayerNormalization as one operation; GELU and
attention have the forms that ONNX Runtime's transformer optimizer and OpenVINO fuse.

Shapes: B batch, N choices, S sequence, H hidden, A heads, D = H / A, C labels,
V vocabulary.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf.base.config import ATTENTION_MASK_PENALTY, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.source import Source

if TYPE_CHECKING:
    import onnx

OPSET = 17
# The latest version of the file format that all current runtimes read.
_IR_VERSION = 8

# The models' inputs and outputs -> the names here, which are transformers'.
INPUTS = {
    "input_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}
OUTPUTS = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "masked_lm_logits": "prediction_logits",
    "next_sentence_logits": "seq_relationship_logits",
}
_INPUTS = tuple(INPUTS.values())
# An input of models that run here; files have only transformers' inputs.
POSITIONS = "masked_lm_positions"


def refuse_unknown_parts(source: Source) -> None:
    """Raises InputError for parts that ONNX does not have."""
    if source.require_config().bilstm:
        raise InputError(
            f"{source.path} was trained with bilstm, which our ONNX graph does not"
            " have. Export it as saved_model or litert."
        )


def build(
    source: Source,
    *,
    dtype: Any = np.float32,
    pooling: str | None = None,
    normalizes: bool = False,
    sentence_vectors: Sequence[str] = (),
    at_positions: bool = False,
) -> "onnx.ModelProto":
    """Returns an ONNX model of a checkpoint's head, or of its features.

    Args:
        source: a checkpoint; its heads determine the outputs.
        dtype: float32, or float16 for weights and activations; outputs are float32.
        pooling: "mean", "max" or "cls": adds `sentence_embedding` to the features.
        normalizes: whether vectors of texts have length 1.
        sentence_vectors: any of "mean", "max", "cls", "pooled": the only features,
            [B, H].
        at_positions: whether the masked LM takes POSITIONS [B, P], and returns
            `masked_lm_logits` [B, P, V] at these positions only.

    Raises:
        InputError: the graph cannot have the model's parts, or its several heads.
    """
    import onnx
    from onnx import helper

    config = source.require_config()
    heads = [one for one in names.heads_of(source.weights) if one != names.WINDOWS]
    refuse_unknown_parts(source)
    if len(heads) > 1 and heads != [names.MASKED_LM, names.NEXT_SENTENCE]:
        raise InputError(
            f"{source.path} has several heads: {', '.join(heads)}. Choose by `heads`."
        )
    has_choices = any(names.HEADS[head].has_choices for head in heads)
    graph = _Graph(source.weights, np.dtype(dtype))
    model = ModelGraph(graph, config)
    model.encode(has_choices)
    inputs = dict.fromkeys(
        _INPUTS,
        ["batch", "choices", "sequence"] if has_choices else ["batch", "sequence"],
    )
    if at_positions:
        inputs[POSITIONS] = ["batch", "positions"]
        model.gather_positions()
    if not heads:
        if not sentence_vectors:
            model.features()
        vectors = {kind: kind for kind in sentence_vectors}
        if pooling is not None:
            vectors["sentence_embedding"] = pooling
        for name, kind in vectors.items():
            model.sentence_vector(name, kind, normalizes)
    for head in heads:
        add_outputs: Callable[[ModelGraph], None] = names.HEADS[head].code("onnx")
        add_outputs(model)
    if at_positions:
        graph.rename({"logits": "masked_lm_logits"})
    elif heads == [names.MASKED_LM, names.NEXT_SENTENCE]:
        graph.rename({"logits": "prediction_logits"})
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "bert",
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.INT64, shape)
                for name, shape in inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                for name, shape in graph.outputs.items()
            ],
            list(graph.initializers.values()),
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="bert_tf",
    )


class _Graph:
    """Nodes and constants; each method returns the name of an output."""

    def __init__(self, weights: Mapping[str, np.ndarray], dtype: np.dtype) -> None:
        self.weights = weights
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.outputs: dict[str, list[int | str]] = {}
        self._numbers = itertools.count()

    def add(self, kind: str, *inputs: Any, count: int = 1, **attributes: Any) -> Any:
        """Returns a new node's output, or its `count` outputs."""
        # An input is an output's name, or a constant's value.
        from onnx import helper

        inputs = tuple(x if isinstance(x, str) else self.constant(x) for x in inputs)
        number = next(self._numbers)
        outputs = [f"{kind}_{number}" + (f"_{i}" if i else "") for i in range(count)]
        node = helper.make_node(kind, inputs, outputs, outputs[0], **attributes)
        self.nodes.append(node)
        return outputs if count > 1 else outputs[0]

    def constant(self, value: Any, name: str | None = None) -> str:
        """Returns a constant; ints become int64, other numbers the model's type."""
        from onnx import numpy_helper

        array = np.asarray(value)
        is_int = np.issubdtype(array.dtype, np.integer)
        array = array.astype(np.int64 if is_int else self.dtype)
        name = name or f"constant {array.dtype} {array.tolist()}"
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """Returns a weight under its original name."""
        array = self.weights[name]
        return self.constant(array.T if transposed else array, name)

    def output(self, name: str, x: str, shape: list[int | str]) -> None:
        """Makes a result an output of the model, as float32."""
        kind = "Identity" if self.dtype == np.float32 else "Cast"
        node = self.add(kind, x, **({"to": 1} if kind == "Cast" else {}))
        assert node == self.nodes[-1].output[0]
        self.nodes[-1].output[0] = name
        self.outputs[name] = shape

    def rename(self, changed: Mapping[str, str]) -> None:
        """Renames outputs of the model."""
        self.outputs = {changed.get(n, n): x for n, x in self.outputs.items()}
        for node in self.nodes:
            node.output[:] = [changed.get(name, name) for name in node.output]


class _Blocks(NamedTuple):
    queries: str  # [n, w], places in a padded sequence
    keys: str  # [n, c]
    padding: str  # of a sequence [B, S, ...]
    bias: str  # [B, n, 1, w, c]
    num_global: str  # g, [1]
    is_global: str  # which of the first tokens are, [B, g, 1]


class ModelGraph:
    """BERT's computation, as nodes of a graph."""

    def __init__(self, graph: _Graph, config: BertConfig) -> None:
        self.graph = graph
        self.config = config
        self.states: list[str] = []  # of the embeddings and each layer, [B, S, H]
        self.mask = "attention_mask"  # [B, S]

    def encode(self, has_choices: bool) -> None:
        """Computes the layers' states from the inputs."""
        graph, config = self.graph, self.config
        ids, mask, segments = _INPUTS
        if has_choices:  # flattened to one dimension, [B N, S]
            length = self._length(ids, 2)
            flat = graph.add("Concat", [-1], length, axis=0)
            ids, mask, segments = (graph.add("Reshape", x, flat) for x in _INPUTS)
        self.mask = mask
        tables = [row.original for row in names.EMBEDDINGS[:3]]
        words, kinds = (
            graph.add("Gather", graph.weight(table), x, axis=0)
            for table, x in zip(tables, (ids, segments), strict=False)
        )
        places = graph.add("Slice", graph.weight(tables[2]), [0], self._length(ids, 1))
        x = graph.add("Add", graph.add("Add", words, kinds), places)
        x = self.norm(x, *(row.original for row in names.EMBEDDINGS[3:]))
        if config.embedding_width != config.hidden_size:
            x = self.dense(x, *(row.original for row in names.MAPPING_IN))
        bias = self._attention_bias(ids)
        if config.attention_window:
            self.blocks = self._blocks(segments, config.attention_window)
        self.states = [x]
        for number in range(config.num_hidden_layers):
            self.states.append(self._layer(self.states[-1], bias, number))

    def _length(self, x: str, axis: int) -> str:
        """Returns the size of a dimension, [1]."""
        shape = self.graph.add("Shape", x)
        return self.graph.add("Gather", shape, [axis], axis=0)

    def _attention_bias(self, ids: str) -> str:
        """Returns 0 where a token may attend, else the penalty: [B, 1, 1 or S, S]."""
        graph, config = self.graph, self.config
        # Two nodes: attention is fused only in this form.
        x = graph.add("Unsqueeze", self.mask, [1])
        x = graph.add("Unsqueeze", x, [2])
        visible = graph.add("Cast", x, to=_type_of(graph.dtype))
        if not config.is_bidirectional:
            length = self._length(ids, 1)
            square = graph.add("Concat", length, length, axis=0)
            ones = graph.add("Expand", 1.0, square)
            seen = graph.add("Trilu", ones, upper=int(config.right_to_left))
            visible = graph.add("Mul", visible, seen)
        hidden = graph.add("Sub", 1.0, visible)
        return graph.add("Mul", hidden, ATTENTION_MASK_PENALTY)

    def _layer(self, x: str, bias: str, number: int) -> str:
        """Adds self-attention, then the feed-forward network (Vaswani et al. 2017)."""
        graph, config = self.graph, self.config
        query, key, value, projection, norm, inner, outer, last_norm = _rows_of_layer(
            config, number
        )
        parts = [self.dense(x, *rows) for rows in (query, key, value)]
        if config.attention_window:
            context = self._local_context(x, parts, bias, number)
        else:
            context = self._context(parts, bias)
        y = self._adapted(self.dense(context, *projection), projection)
        x = self.norm(graph.add("Add", y, x), *norm)
        inside = self.activated(self.dense(x, *inner), config.hidden_act)
        y = self._adapted(self.dense(inside, *outer), outer)
        return self.norm(graph.add("Add", y, x), *last_norm)

    def _context(self, parts: Sequence[str], bias: str, axes: tuple = (0,)) -> str:
        """Returns the context of queries, keys and values [B, S, H].

        Blocks [B, n, w, H] have two `axes` before their tokens.
        """
        graph, width = self.graph, self.config.hidden_size
        size, token = width // self.config.num_attention_heads, len(axes)
        same, order = [0] * (token + 1), [*axes, token + 1, token, token + 2]
        by_head = [*same, width // size, size]
        query, key, value = (graph.add("Reshape", x, by_head) for x in parts)
        queries, values = (
            graph.add("Transpose", x, perm=order) for x in (query, value)
        )
        keys = graph.add("Transpose", key, perm=[*axes, token + 1, token + 2, token])
        scores = graph.add("Div", graph.add("MatMul", queries, keys), math.sqrt(size))
        scores = graph.add("Add", scores, bias)
        context = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
        context = graph.add("Transpose", context, perm=order)
        return graph.add("Reshape", context, [*same, width])

    # Local attention, for tokens as `local_attention` has it.

    def _blocks(self, segments: str, window: int) -> _Blocks:
        """Returns the blocks, of w tokens or of all S, and the keys that they see."""
        add = self.graph.add
        length = add("Squeeze", self._length(segments, 1))
        width = add("Min", length, window)
        count = add("Min", length, self.config.global_tokens or 0)
        # A place is counted from a block of padding before the sequence.
        begin, end = width, add("Add", width, width)
        starts = add("Unsqueeze", add("Range", 0, length, width), [1])
        own = add("Range", begin, end, 1)
        near = add("Range", 0, add("Add", end, width), 1)
        first = add("Range", begin, add("Add", begin, count), 1)
        first = add("Add", add("Mul", starts, 0), first)
        keys = add("Concat", add("Add", starts, near), first, axis=1)
        padding = add("Mul", [0, 1, 0, 0, 2, 0], width)
        # Padding is of kind 0, a token 1, a global one 2. A query sees keys of kind 1
        # in its window, and of kind 2 in the last columns.
        is_first = add("Less", add("Range", 0, length, 1), count)
        is_global = add("And", add("Equal", segments, 0), is_first)
        kinds = add("Mul", add("Where", is_global, 2, 1), self.mask)
        kinds = add("Unsqueeze", kinds, [2])
        of_keys = add("Gather", add("Pad", kinds, padding), keys, axis=1)
        of_keys = add("Reshape", of_keys, [0, 0, 1, 1, -1])
        distance = add("Abs", add("Sub", near, add("Unsqueeze", own, [1])))
        seen = add("Where", add("LessOrEqual", distance, window), 1, -1)
        seen = add("Pad", seen, add("Mul", [0, 0, 0, 1], count), 2)
        is_seen = add("Equal", of_keys, seen)
        count = add("Unsqueeze", count, [0])
        return _Blocks(
            queries=add("Add", starts, own),
            keys=keys,
            padding=padding,
            bias=add("Where", is_seen, 0.0, ATTENTION_MASK_PENALTY),
            num_global=count,
            is_global=add("Equal", add("Slice", kinds, [0], count, [1]), 2),
        )

    def _local_context(
        self, x: str, parts: Sequence[str], bias: str, number: int
    ) -> str:
        add, blocks = self.graph.add, self.blocks
        places = (blocks.queries, blocks.keys, blocks.keys)
        padded = [add("Pad", part, blocks.padding) for part in parts]
        cut = [add("Gather", *one, axis=1) for one in zip(padded, places, strict=True)]
        context = self._context(cut, blocks.bias, (0, 1))
        context = add("Reshape", context, [0, -1, self.config.hidden_size])
        context = add("Slice", context, [0], self._length(x, 1), [1])
        if not self.config.global_tokens:
            return context
        first, local = (
            add("Slice", y, [0], blocks.num_global, [1]) for y in (x, context)
        )
        rows = [row.at(number).original for row in names.GLOBAL]
        of_all = zip((first, x, x), rows[::2], rows[1::2], strict=True)
        first = self._context([self.dense(*one) for one in of_all], bias)
        first = add("Where", blocks.is_global, first, local)
        rest = add("Slice", context, blocks.num_global, [2**31], [1])
        return add("Concat", first, rest, axis=1)

    def _adapted(self, x: str, rows: Sequence[str]) -> str:
        """Returns the adapter's x + gelu(x D + c) U + d, or x without an adapter."""
        scope = rows[0].removesuffix("dense/kernel") + "adapter"
        if f"{scope}/down/kernel" not in self.graph.weights:
            return x
        down, up = (
            [f"{scope}/{part}/{name}" for name in ("kernel", "bias")]
            for part in ("down", "up")
        )
        inner = self.activated(self.dense(x, *down), "gelu")
        return self.graph.add("Add", x, self.dense(inner, *up))

    def dense(self, x: str, kernel: str, bias: str, *, transposed: bool = False) -> str:
        """Returns x W + b for x [..., inputs]; `output_weights` are transposed."""
        product = self.graph.add(
            "MatMul", x, self.graph.weight(kernel, transposed=transposed)
        )
        return self.graph.add("Add", product, self.graph.weight(bias))

    def norm(
        self, x: str, gamma: str, beta: str, *, epsilon: float | None = None
    ) -> str:
        """Normalizes [..., H] over the last dimension."""
        weights = self.graph.weight(gamma), self.graph.weight(beta)
        epsilon = self.config.layer_norm_eps if epsilon is None else epsilon
        return self.graph.add(
            "LayerNormalization", x, *weights, axis=-1, epsilon=epsilon
        )

    def activated(self, x: str, name: str) -> str:
        """Applies a config's `hidden_act`, to any shape."""
        add = self.graph.add
        if name == "gelu":
            # x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
            cube = add("Mul", add("Pow", x, 3.0), 0.044715)
            inner = add("Mul", add("Add", x, cube), math.sqrt(2 / math.pi))
            share = add("Add", add("Tanh", inner), 1.0)
            return add("Mul", add("Mul", x, 0.5), share)
        if name == "gelu_erf":
            # x (1 + erf(x / sqrt(2))) / 2
            share = add("Add", add("Erf", add("Div", x, math.sqrt(2.0))), 1.0)
            return add("Mul", add("Mul", x, share), 0.5)
        kinds = {"relu": "Relu", "tanh": "Tanh", "linear": "Identity"}
        return add(kinds[name], x)

    def gather_positions(self) -> None:
        """Keeps only the states at `masked_lm_positions`, [B, P, H]."""
        places = self.graph.add("Unsqueeze", POSITIONS, [2])
        self.states = [
            self.graph.add("GatherND", state, places, batch_dims=1)
            for state in self.states
        ]

    def tokens(self) -> str:
        """Returns the input of the heads of tokens, [B, S, H]."""
        return self._mixed(self.states)

    def pooled(self) -> str:
        """Returns the input of the heads of sequences, [B, H]."""
        kernel, bias = (row.original for row in names.POOLER)
        states = self.states[-1:] if self._mixture() is None else self.states
        x = self._mixed([self._pooled_token(state) for state in states])
        x = self.dense(x, kernel, bias)
        return self.activated(x, self.config.pooler_hidden_act)

    def _pooled_token(self, x: str) -> str:
        """Returns [CLS], or the last token of a left-to-right model: [B, H]."""
        graph = self.graph
        if not self.config.left_to_right:
            return graph.add("Gather", x, 0, axis=1)
        count = graph.add("ReduceSum", self.mask, [1], keepdims=1)
        last = graph.add("Max", graph.add("Sub", count, [1]), [0])
        return graph.add("GatherND", x, last, batch_dims=1)

    def _mixture(self) -> np.ndarray | None:
        """Returns the weights of the layers' states, if they are mixed."""
        scope = "bert/layer_mixture"
        if f"{scope}/scores" not in self.graph.weights:
            return None
        from bert_tf.modeling.pooling import SCORE_SCALE

        scores = SCORE_SCALE * np.float64(self.graph.weights[f"{scope}/scores"])
        shares = np.exp(scores - scores.max())
        return self.graph.weights[f"{scope}/gamma"] * shares / shares.sum()

    def _mixed(self, states: Sequence[str]) -> str:
        """Returns the weighted sum of the states, or the last one."""
        mixture = self._mixture()
        if mixture is None:
            return states[-1]
        parts = [
            self.graph.add("Mul", state, float(share))
            for state, share in zip(states, mixture, strict=True)
        ]
        return self.graph.add("Sum", *parts)

    # The outputs.

    def features(self) -> None:
        """Adds the states of the last layer, and the pooler's output."""
        graph, width = self.graph, self.config.hidden_size
        tokens = self.states[-1]
        graph.output("last_hidden_state", tokens, ["batch", "sequence", width])
        if names.POOLER[0].original in graph.weights:
            graph.output("pooler_output", self.pooled(), ["batch", width])

    def sentence_vector(self, name: str, kind: str, normalizes: bool) -> None:
        """Adds one vector for each text."""
        graph, width = self.graph, self.config.hidden_size
        tokens = self.states[-1]
        if kind == "pooled":
            vector = self.pooled()
        elif kind == "cls":
            vector = self._pooled_token(tokens)
        else:
            mask = graph.add("Unsqueeze", self.mask, [2])
            if kind == "max":
                is_token = graph.add("Cast", mask, to=_type_of(np.dtype(bool)))
                some = graph.add("Where", is_token, tokens, -6e4)
                vector = graph.add("ReduceMax", some, axes=[1], keepdims=0)
            else:
                mask = graph.add("Cast", mask, to=_type_of(graph.dtype))
                some = graph.add("Mul", tokens, mask)
                total = graph.add("ReduceSum", some, [1], keepdims=0)
                count = graph.add("ReduceSum", mask, [1], keepdims=0)
                vector = graph.add("Div", total, graph.add("Max", count, 1e-9))
        if normalizes:
            norm = graph.add("ReduceL2", vector, axes=[1], keepdims=1)
            vector = graph.add("Div", vector, graph.add("Max", norm, 1e-12))
        graph.output(name, vector, ["batch", width])

    def scores(self, head: str, x: str) -> tuple[str, int]:
        """Returns a linear layer's output [..., C], and C."""
        kernel, bias = (row.original for row in names.HEADS[head].weights)
        logits = self.dense(x, kernel, bias, transposed=True)
        return logits, self.graph.weights[kernel].shape[0]

    def classifier(self) -> None:
        """Adds scores of a text's labels."""
        logits, count = self.scores(names.CLASSIFIER, self.pooled())
        self.graph.output("logits", logits, ["batch", count])

    def next_sentence(self) -> None:
        """Adds scores of a pair's labels."""
        logits, count = self.scores(names.NEXT_SENTENCE, self.pooled())
        self.graph.output("seq_relationship_logits", logits, ["batch", count])

    def multiple_choice(self) -> None:
        """Adds a score of each choice."""
        logits, _ = self.scores(names.MULTIPLE_CHOICE, self.pooled())
        shape = self.graph.add("Shape", _INPUTS[0])
        shape = self.graph.add("Slice", shape, [0], [2])
        logits = self.graph.add("Reshape", logits, shape)
        self.graph.output("logits", logits, ["batch", "choices"])

    def tagging(self) -> None:
        """Adds scores of each token's labels."""
        logits, count = self.scores(names.TAGGING, self.tokens())
        self.graph.output("logits", logits, ["batch", "sequence", count])

    def span(self) -> None:
        """Adds scores of each token as the first and the last of an answer."""
        logits, _ = self.scores(names.SPAN, self.tokens())
        for number, name in enumerate(("start_logits", "end_logits")):
            column = self.graph.add("Gather", logits, number, axis=2)
            self.graph.output(name, column, ["batch", "sequence"])

    def masked_lm(self) -> None:
        """Adds scores of the vocabulary at each token."""
        graph, config = self.graph, self.config
        kernel, bias, gamma, beta, output_bias, matrix = (
            row.original for row in names.HEADS[names.MASKED_LM].weights
        )
        x = self.dense(self.tokens(), kernel, bias)
        x = self.activated(x, config.masked_lm_hidden_act or config.hidden_act)
        x = self.norm(x, gamma, beta, epsilon=config.masked_lm_layer_norm_eps)
        if config.tie_word_embeddings:
            table = graph.weight(names.EMBEDDINGS[0].original)
            scores = graph.add("MatMul", x, graph.add("Transpose", table, perm=[1, 0]))
            logits = graph.add("Add", scores, graph.weight(output_bias))
        else:
            logits = self.dense(x, matrix, output_bias, transposed=True)
        graph.output("logits", logits, ["batch", "sequence", config.vocab_size])

    def replaced_tokens(self) -> None:
        """Adds the score of each token as a replaced one (ELECTRA)."""
        rows = [row.original for row in names.HEADS[names.REPLACED_TOKENS].weights]
        x = self.dense(self.states[-1], *rows[:2])
        x = self.activated(x, self.config.hidden_act)
        logits = self.dense(x, *rows[2:])
        logits = self.graph.add("Squeeze", logits, [2])
        self.graph.output("logits", logits, ["batch", "sequence"])


def _rows_of_layer(config: BertConfig, number: int) -> list[list[str]]:
    """Returns the names of a layer's eight pairs of weights, as computed."""
    rows = [row.at(number) for row in names.LAYER]
    if config.shares_layers:  # whose normalizations come last
        dense, norms = names.SHARED_LAYER[:12], names.SHARED_LAYER[12:]
        rows = [*dense[:8], *norms[:2], *dense[8:], *norms[2:]]
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return [[one.original, other.original] for one, other in pairs]


def _type_of(dtype: np.dtype) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(dtype)
