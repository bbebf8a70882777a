"""BERT's encoder as a functional model."""

import contextlib
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from bert_tf.base import keras_backend
from bert_tf.base.addons import addon
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.modeling.layers import (
    AttentionBias,
    Embeddings,
    Pooler,
    TransformerLayer,
    dense,
    freeze_parts,
    frozen_parts,
    linked_embeddings,
)
from bert_tf.modeling.pooling import LayerMixture, PackedPositions, PooledTokens
from bert_tf.modeling.weight_names import ADDED


class DictInputModel(keras.Model):
    """A functional model with dict inputs, which ignores further entries.

    Keras matches the values of a dict with the inputs by position, so a record's labels
    must be removed first.

    Arrays and eager tensors are checked before the model runs: a device may look up a
    wrong row for an invalid id, or none.
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the model. Raises InputError if an input does not fit it."""
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains as Keras does. Raises InputError if an input or a label is wrong."""
        keras_backend.refuse_fork()
        self._check(x)
        if isinstance(kwargs.get("validation_data"), tuple | list):
            held_x, *others = kwargs["validation_data"]
            self._check(held_x)
            labels = map(self._labels, others[:1])
            kwargs["validation_data"] = (held_x, *labels, *others[1:])
        return super().fit(x, self._labels(y), *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as Keras does; checks inputs as `fit` does."""
        keras_backend.refuse_fork()
        self._check(x)
        return super().evaluate(x, self._labels(y), *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as Keras does; checks inputs as `fit` does."""
        keras_backend.refuse_fork()
        self._check(x)
        return super().predict(x, *args, **kwargs)

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves as Keras does. Raises InputError for HDF5, which Keras cannot load."""
        if str(filepath).endswith((".h5", ".hdf5")):
            raise InputError(
                f"{filepath}: Keras could not load it again, as HDF5 does not say where"
                " a class is defined. Save NAME.keras."
            )
        super().save(filepath, *args, **kwargs)

    def make_train_function(self, force: bool = False) -> Any:
        """Builds the optimizer's variables first, so that a step is traced once."""
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and not optimizer.built and self.trainable_variables:
            optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def _constructor_arguments(self) -> dict[str, Any]:
        """Returns the arguments in `get_config`, without `trainable`."""
        raise NotImplementedError

    def _labels(self, y: Any) -> Any:
        """Returns targets in Keras' form; heads also check them."""
        return y

    def _check(self, inputs: Any) -> None:
        """Raises InputError for ids out of range, or more tokens than positions."""
        config: BertConfig | None = getattr(self, "bert_config", None)
        if config is None or not isinstance(inputs, Mapping):
            return
        if missing := [name for name in self.input if name not in inputs]:
            hint = ""
            if {"attention_mask", "token_type_ids"} & inputs.keys():
                hint = (
                    " Hugging Face's `attention_mask` is `input_mask` here, and"
                    " `token_type_ids` is `segment_ids`."
                )
            raise InputError(
                f"{self.name} reads {', '.join(self.input)}; {', '.join(missing)} is"
                f" missing.{hint}"
            )
        for name, limit in (
            ("input_ids", config.vocab_size),
            ("segment_ids", config.type_vocab_size),
            ("position_ids", config.max_position_embeddings),
        ):
            if name in inputs:
                check_range(inputs[name], limit, name)
        # Otherwise positions do not depend on the length.
        if {"position_ids", "sequence_ids"}.isdisjoint(self.input):
            length = np.shape(inputs.get("input_ids", ()))[-1:]
            if length and (length[0] or 0) > config.max_position_embeddings:
                raise InputError(
                    "`input_ids` must not be longer than the model's"
                    f" {config.max_position_embeddings} positions. Received:"
                    f" {length[0]} ids per sequence"
                )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, and which parts are trained."""
        return {
            **self._constructor_arguments(),
            "trainable": self.trainable,
            "frozen_parts": frozen_parts(self),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "DictInputModel":
        """Returns the model that `get_config` describes."""
        config = dict(config)
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        if "embeddings" in config:
            config["embeddings"] = linked_embeddings(
                config["embeddings"],
                config["name"],
                BertConfig(**config["config"]),
                config["dtype"],
            )
        is_trainable = config.pop("trainable", True)
        flags = config.pop("frozen_parts", None)
        model = cls(**config)
        # Older files lack the flags; True would unfreeze what LoRA has frozen.
        if flags is not None:
            freeze_parts(model, is_trainable, flags)
        elif not is_trainable:
            model.trainable = False
        return model

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Runs the model on the entries of `inputs` that it reads."""
        return super().call(self._own_inputs(inputs), training=training, mask=mask)

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return super().compute_output_spec(
            self._own_inputs(inputs), training=training, mask=mask
        )

    def _own_inputs(self, inputs: Any) -> Any:
        if not isinstance(inputs, Mapping):
            return inputs
        return {name: inputs[name] for name in self.input}


def check_range(ids: Any, limit: int, name: str) -> None:
    """Raises InputError unless ids are in [0, limit); while traced they are unknown."""
    is_known = isinstance(ids, np.ndarray | list | tuple) or hasattr(ids, "numpy")
    if not is_known and not _is_array_of_jax(ids):
        return
    ids = np.asarray(ids)
    if ids.size and (ids.min() < 0 or ids.max() >= limit):
        outside = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(f"`{name}` must be in [0, {limit}). Received: {outside}")


def _is_array_of_jax(ids: Any) -> bool:
    if not keras_backend.is_jax():
        return False
    import jax

    return isinstance(ids, jax.Array) and not isinstance(ids, jax.core.Tracer)


# BertEncoder: token ids to hidden states, a functional Keras model.
#
# Inputs, under the records' names, int32:
#     input_ids [B, S], input_mask [B, S] (1 for tokens, 0 for padding) and
#     segment_ids [B, S]; on request, position_ids [B, S] and attention_mask
#     [B, S, S] (row: the attending token; column: the token attended to). For packed
#     rows sequence_ids [B, S] and cls_positions [B, N], which give the positions and
#     attention masks.
# Outputs:
#     sequence_output [B, S, H] and pooled_output [B, H], for packed rows [B, N, H]; on
#     request, hidden_states, the embeddings and every layer's output, each [B, S, H],
#     and attention_probs, every layer's [B, A, S, S] before dropout.
#
# With `left_to_right` in its config, a token attends only to itself and earlier ones,
# and the last token is pooled (Devlin et al. 2018, section 5.1, "LTR"); with
# `right_to_left`, to itself and later ones. With `bilstm`, an LSTM reads the sequence
# output both ways; its last states are pooled, without a dense layer. With
# `cls_normalization`, the pooled output is standardized last.
#
# A call may pass a whole parsed record: features that the model does not read are
# ignored.


def as_config(config: BertConfig | Mapping[str, Any] | str) -> BertConfig:
    """Returns a BertConfig from itself, its fields, or the name of a released size."""
    if isinstance(config, BertConfig):
        return config
    if isinstance(config, str):
        return BertConfig.from_size(config)
    return BertConfig(**config)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(DictInputModel, keras_hub.models.Backbone):
    """The Transformer encoder of Devlin et al. 2018.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name ("base",
            "L-4_H-256").
        output_hidden_states: whether the outputs hold `hidden_states`.
        output_attentions: whether the outputs hold `attention_probs`.
        use_position_ids: whether there is an input `position_ids`.
        use_attention_mask: whether there is an input `attention_mask`.
        use_pooler: whether there is a pooler, and the output `pooled_output`.
        embeddings: another encoder's embeddings, to share; None for new ones.
        packed: whether a row holds several sequences, and there are the inputs
            `sequence_ids` and `cls_positions`.
        longest_sequence: the most tokens of a packed row's sequence. Given it, a token
            attends only to those at most as far away: the same, at less cost.
        recompute: whether training keeps only each layer's input, and computes the
            rest again in the backward pass: for long sequences.
        layer_mixture: whether the pooler's input, or without a pooler the sequence
            output, is a learned mixture of all layers.
        lora_rank: rank of LoRA's product of matrices; 0 for no LoRA. With LoRA or
            adapters, the pre-trained weights are frozen.
        adapter_size: size of the layers' adapters; 0 for none.
        train_pooler: whether the pooler is trained with LoRA or adapters.
        dtype: Keras dtype policy, such as "mixed_bfloat16"; default: the global policy.
        name: the model's name, and the first part of its variables' paths.

    Attributes:
        bert_config: the BertConfig.
        embeddings: the layer that owns the three tables.

    Raises:
        ValueError: both `packed` and `use_position_ids`, or both `lora_rank` and
            `adapter_size`, or `train_pooler` without a pooler; a BiLSTM with packed
            rows; `longest_sequence` without them, or with `attention_window`.

    Examples:
        >>> config = bert_tf.BertConfig(
        ...     vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1
        ... )
        >>> encoder = bert_tf.BertEncoder(config)
        >>> ids = np.array([[2, 5, 6, 3]])
        >>> inputs = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
        >>> outputs = encoder(inputs)
        >>> outputs["sequence_output"].shape, outputs["pooled_output"].shape
        (TensorShape([1, 4, 8]), TensorShape([1, 8]))
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        use_position_ids: bool = False,
        use_attention_mask: bool = False,
        use_pooler: bool = True,
        embeddings: Embeddings | None = None,
        packed: bool = False,
        longest_sequence: int | None = None,
        recompute: bool = False,
        layer_mixture: bool = False,
        lora_rank: int = 0,
        adapter_size: int = 0,
        train_pooler: bool = False,
        dtype: Any = None,
        name: str = "bert",
        **kwargs: Any,
    ):
        config = as_config(config)
        has_pooler = use_pooler and not config.bilstm
        own_config = config
        if longest_sequence:
            if not packed or config.attention_window:
                raise ValueError(
                    "`longest_sequence` is for `packed`, and for a config without"
                    " `attention_window`."
                )
            config = dataclasses.replace(config, attention_window=longest_sequence)
        _check_arguments(
            config,
            packed=packed,
            use_position_ids=use_position_ids,
            lora_rank=lora_rank,
            adapter_size=adapter_size,
            trains_missing_pooler=train_pooler and not has_pooler,
            needs_scores=output_attentions or use_attention_mask,
        )

        # === Layers ===
        if embeddings is None:
            embeddings = Embeddings(config, dtype=dtype)
        else:
            embeddings.is_linked = True
        mapping_in = _mapping_in(config, dtype)
        transformer_layers = _transformer_layers(config, recompute, adapter_size, dtype)
        pooled_tokens = PooledTokens(
            config.left_to_right, dtype=dtype, name="pooled_tokens"
        )
        mixture = LayerMixture(dtype=dtype) if layer_mixture else None
        pooler = Pooler(config, dtype=dtype) if has_pooler else None
        bilstm = (
            addon("bilstm")(config.hidden_size, dtype=dtype) if config.bilstm else None
        )

        # === Inputs ===
        inputs = _inputs(use_position_ids, use_attention_mask, packed)
        input_mask, segment_ids = inputs["input_mask"], inputs["segment_ids"]
        sequence_ids = inputs.get("sequence_ids")
        cls_positions = inputs.get("cls_positions")
        position_ids = inputs.get("position_ids")
        if packed:
            positions = PackedPositions(name="packed_positions")
            position_ids = positions(sequence_ids, cls_positions)

        # === Functional Model ===
        # The scopes give the variables the original's names.
        with keras.name_scope(name):
            x = embeddings(inputs["input_ids"], segment_ids, position_ids)
            if config.attention_window:
                mask = addon("local_attention").LocalAttentionMask(config, dtype)
                bias = mask(input_mask, segment_ids, sequence_ids)
            else:
                bias = AttentionBias(config, dtype=dtype)(
                    input_mask, inputs.get("attention_mask"), sequence_ids
                )
            hidden_states, attention_probs = _encode(
                x, bias, mapping_in, transformer_layers, config.shares_layers
            )

            # === Ends ===
            outputs = {"sequence_output": hidden_states[-1]}
            if pooler is not None:
                masks = input_mask, sequence_ids, cls_positions
                if mixture is None:
                    tokens = pooled_tokens(hidden_states[-1], *masks)
                else:
                    # Mixes the pooled tokens alone: the same, from far fewer numbers.
                    tokens = mixture([pooled_tokens(h, *masks) for h in hidden_states])
                outputs["pooled_output"] = pooler(tokens)
            elif mixture is not None:
                outputs["sequence_output"] = mixture(hidden_states)
            if bilstm is not None:
                is_token = ops.cast(input_mask, "bool")
                x = bilstm(outputs["sequence_output"], mask=is_token)
                outputs["sequence_output"] = x
                if use_pooler:
                    outputs["pooled_output"] = bilstm.ends(x, input_mask)
            if config.cls_normalization and use_pooler:
                standardization = addon("standardization").Standardization(dtype=dtype)
                outputs["pooled_output"] = standardization(outputs["pooled_output"])
        if output_hidden_states:
            outputs["hidden_states"] = hidden_states
        if output_attentions:
            outputs["attention_probs"] = attention_probs
        super().__init__(
            inputs=inputs, outputs=outputs, dtype=dtype, name=name, **kwargs
        )

        # === Config ===
        self.bert_config = own_config
        self.embeddings = embeddings
        self.options = {
            "output_hidden_states": output_hidden_states,
            "output_attentions": output_attentions,
            "use_position_ids": use_position_ids,
            "use_attention_mask": use_attention_mask,
            "use_pooler": use_pooler,
            "packed": packed,
            "longest_sequence": longest_sequence,
            "recompute": recompute,
            "layer_mixture": layer_mixture,
            "lora_rank": lora_rank,
            "adapter_size": adapter_size,
            "train_pooler": train_pooler,
        }
        if lora_rank:
            self.enable_lora(lora_rank)
        elif adapter_size:
            self._freeze_pretrained()

    def enable_lora(self, rank: int) -> None:
        """Adds LoRA to queries and values, as KerasHub does; freezes all else."""
        super().enable_lora(rank)
        self.options["lora_rank"] = rank
        self._freeze_pretrained()

    def _freeze_pretrained(self) -> None:
        """Freezes all but the added weights and those trained on request."""
        # Trained while the pre-trained weights are frozen:
        #
        #     LoRA        A and B of queries and values
        #     adapters    the adapters and every LayerNorm, Houlsby et al. 2019
        #     both        the head, any mixture of layers, and on request the
        #                 pooler: no paper trains it, but a checkpoint may
        #                 lack one
        #
        # All other weights are frozen: no gradient, no weight decay, no moments.
        trained = [ADDED]
        if self.options["adapter_size"]:
            trained.append(r"LayerNorm(_1)?/(gamma|beta)")
        if self.options["train_pooler"]:
            trained.append(r"pooler/.*")
        is_trained = re.compile(f".*/({'|'.join(trained)})").fullmatch
        # Each weight separately: a frozen layer would hide its weights.
        for layer in self.layers:
            layer.trainable = True
        for variable in self.trainable_variables:
            variable.trainable = bool(is_trained(variable.path))

    def _constructor_arguments(self) -> dict[str, Any]:
        return {
            "config": self.bert_config.to_dict(),
            **self.options,
            **({"embeddings": self.embeddings.link()} if self._shares else {}),
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
        }

    @property
    def _shares(self) -> bool:
        """Whether a head or another encoder uses the same embeddings."""
        return self.embeddings.is_linked


def _check_arguments(
    config: BertConfig,
    *,
    packed: bool,
    use_position_ids: bool,
    lora_rank: int,
    adapter_size: int,
    trains_missing_pooler: bool,
    needs_scores: bool,
) -> None:
    """Raises ValueError for arguments of BertEncoder that exclude each other."""
    if packed and config.global_tokens:
        raise ValueError(
            "`packed` must be False with `global_tokens`, which see the whole row."
        )
    if needs_scores and config.attention_window:
        raise ValueError(
            "`output_attentions` and `use_attention_mask` are for models without"
            " `attention_window`, whose tokens have scores for all others."
        )
    if packed and use_position_ids:
        raise ValueError(
            "`use_position_ids` must be False with `packed`: the positions of packed"
            " sequences follow from `sequence_ids`."
        )
    if min(lora_rank, adapter_size) < 0 or (lora_rank and adapter_size):
        raise ValueError(
            "One of `lora_rank` and `adapter_size` must be 0, the other one not"
            f" negative. Received: {lora_rank} and {adapter_size}"
        )
    if trains_missing_pooler:
        raise ValueError("`train_pooler` must be False without a pooler.")
    if packed and config.bilstm:
        raise ValueError(
            "`packed` must be False with `bilstm` in the config: it reads one sequence"
            " per row."
        )


def _inputs(
    use_position_ids: bool, use_attention_mask: bool, packed: bool
) -> dict[str, Any]:
    names = ["input_ids", "input_mask", "segment_ids"]
    names += ["position_ids"] * use_position_ids
    names += ["attention_mask"] * use_attention_mask
    names += ["sequence_ids", "cls_positions"] * packed
    return {
        name: keras.Input(
            (None, None) if name == "attention_mask" else (None,),
            dtype="int32",
            name=name,
        )
        for name in names
    }


def _mapping_in(config: BertConfig, dtype: Any) -> keras.layers.Dense | None:
    """Returns the layer from embeddings of another width to the encoder's."""
    if config.embedding_width == config.hidden_size:
        return None
    return dense(config, config.hidden_size, dtype, "embedding_hidden_mapping_in")


def _transformer_layers(
    config: BertConfig, recompute: bool, adapter_size: int, dtype: Any
) -> list[TransformerLayer]:
    """Returns the layers in the order in which they are applied."""
    names = [f"layer_{number}" for number in range(config.num_hidden_layers)]
    if config.shares_layers:
        names = ["group_0"]
    layers = [
        TransformerLayer(config, recompute, adapter_size, dtype=dtype, name=name)
        for name in names
    ]
    # Layers that share their weights are one layer, applied several times.
    return layers * (config.num_hidden_layers // len(names))


def _encode(
    x: Any,
    attention_bias: Any,
    mapping_in: keras.layers.Dense | None,
    layers: Sequence[TransformerLayer],
    are_shared: bool,
) -> tuple[list[Any], list[Any]]:
    """Returns the hidden states, embeddings first, and the layers' probabilities."""
    attention_probs = []
    with contextlib.ExitStack() as scopes:
        scopes.enter_context(keras.name_scope("encoder"))
        x = x if mapping_in is None else mapping_in(x)
        hidden_states = [x]
        if are_shared:
            scopes.enter_context(keras.name_scope("transformer"))
        for layer in layers:
            x, probabilities = layer(x, attention_bias)
            hidden_states.append(x)
            attention_probs.append(probabilities)
    return hidden_states, attention_probs
