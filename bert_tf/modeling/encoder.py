"""BertEncoder: token ids to hidden states, a functional Keras model.

Inputs, under the records' names, int32:
    input_ids [B, S], input_mask [B, S] (1 for tokens, 0 for padding) and segment_ids
    [B, S]; where asked for at construction, position_ids [B, S] and attention_mask
    [B, S, S] (row: the token that looks; column: the token seen). For packed rows
    sequence_ids [B, S] and cls_positions [B, N]: positions and what a token sees follow
    from them.
Outputs:
    sequence_output [B, S, H] and pooled_output [B, H], of packed rows [B, N, H]; where
    asked for, hidden_states, the embeddings and every layer's output, each [B, S, H],
    and attention_probs, every layer's [B, A, S, S] before dropout.

With `left_to_right` in its config a token sees only itself and those before it, and
what is pooled is the last token (Devlin et al. 2018, section 5.1, "LTR").

A call may pass a whole parsed record: what the model does not read is left aside.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import keras_hub

from bert_tf.config import BertConfig
from bert_tf.modeling.attention import AttentionBias
from bert_tf.modeling.layer_mixture import LayerMixture
from bert_tf.modeling.layers import Embeddings, Pooler
from bert_tf.modeling.parameter_efficient import freeze_pretrained
from bert_tf.modeling.record_model import RecordModel
from bert_tf.modeling.sequences import PackedPositions, PooledTokens
from bert_tf.modeling.transformer import TransformerLayer


def as_config(config: BertConfig | Mapping[str, Any] | str) -> BertConfig:
    """A BertConfig from itself, from its fields, or from the name of a released size.

    Raises:
        ValueError: the fields or the name are not valid.
        TypeError: a field is unknown.
    """
    if isinstance(config, BertConfig):
        return config
    if isinstance(config, str):
        return BertConfig.from_size(config)
    return BertConfig(**config)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(RecordModel, keras_hub.models.Backbone):
    """The Transformer encoder of Devlin et al. 2018.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name ("base",
            "L-4_H-256").
        output_hidden_states: whether the outputs hold `hidden_states`.
        output_attentions: whether the outputs hold `attention_probs`.
        use_position_ids: whether there is an input `position_ids`.
        use_attention_mask: whether there is an input `attention_mask`.
        use_pooler: whether there is a pooler, and the output `pooled_output`.
        packed: whether a row holds several sequences, and there are the inputs
            `sequence_ids` and `cls_positions`.
        recompute: whether training keeps only each layer's input, and computes the
            rest again in the backward pass: for long sequences.
        layer_mixture: whether what is pooled is a learned mixture of all layers.
        lora_rank: rank of LoRA's product of matrices; 0 for no LoRA. With LoRA or
            adapters the pre-trained weights are frozen: see `parameter_efficient`.
        adapter_size: size of the layers' adapters; 0 for none.
        train_pooler: whether the pooler is trained with LoRA or adapters.
        dtype: Keras dtype policy, such as "mixed_bfloat16"; default the global one.
        name: the model's name, and the first part of its variables' paths.

    Attributes:
        bert_config: the BertConfig.
        embeddings: the layer that owns the three tables.

    Raises:
        ValueError: both `packed` and `use_position_ids`, or both `lora_rank` and
            `adapter_size`, or a mixture without a pooler.
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
        packed: bool = False,
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
        if packed and use_position_ids:
            raise ValueError(
                "`use_position_ids` must be False with `packed`: the positions of"
                " packed sequences follow from `sequence_ids`."
            )
        if min(lora_rank, adapter_size) < 0 or (lora_rank and adapter_size):
            raise ValueError(
                "One of `lora_rank` and `adapter_size` must be 0, the other one not"
                f" negative. Received: {lora_rank} and {adapter_size}"
            )
        if layer_mixture and not use_pooler:
            raise ValueError(
                "`use_pooler` must be True with `layer_mixture`, which is pooled."
            )

        # === Layers ===
        embeddings = Embeddings(config, dtype=dtype)
        attention_bias = AttentionBias(
            config.left_to_right, dtype=dtype, name="attention_bias"
        )
        transformer_layers = [
            TransformerLayer(
                config, recompute, adapter_size, dtype=dtype, name=f"layer_{i}"
            )
            for i in range(config.num_hidden_layers)
        ]
        pooled_tokens = PooledTokens(
            config.left_to_right, dtype=dtype, name="pooled_tokens"
        )
        mixture = LayerMixture(dtype=dtype) if layer_mixture else None
        pooler = Pooler(config, dtype=dtype) if use_pooler else None

        # === Functional Model ===
        shapes: dict[str, tuple[None, ...]] = {
            "input_ids": (None,),
            "input_mask": (None,),
            "segment_ids": (None,),
        }
        if use_position_ids:
            shapes["position_ids"] = (None,)
        if use_attention_mask:
            shapes["attention_mask"] = (None, None)
        if packed:
            shapes["sequence_ids"] = (None,)
            shapes["cls_positions"] = (None,)
        inputs = {
            key: keras.Input(shape, dtype="int32", name=key)
            for key, shape in shapes.items()
        }
        sequence_ids = inputs.get("sequence_ids")
        cls_positions = inputs.get("cls_positions")
        position_ids = (
            PackedPositions(name="packed_positions")(sequence_ids, cls_positions)
            if packed
            else inputs.get("position_ids")
        )
        # The scopes give the variables the original's names.
        with keras.name_scope(name):
            x = embeddings(inputs["input_ids"], inputs["segment_ids"], position_ids)
            bias = attention_bias(
                inputs["input_mask"], inputs.get("attention_mask"), sequence_ids
            )
            hidden_states, attention_probs = [x], []
            with keras.name_scope("encoder"):
                for layer in transformer_layers:
                    x, probabilities = layer(x, bias)
                    hidden_states.append(x)
                    attention_probs.append(probabilities)
            outputs = {"sequence_output": x}
            if pooler is not None:
                masks = inputs["input_mask"], sequence_ids, cls_positions
                if mixture is None:
                    tokens = pooled_tokens(x, *masks)
                else:
                    # Of the pooled tokens alone: the same, of far fewer numbers.
                    tokens = mixture([pooled_tokens(h, *masks) for h in hidden_states])
                outputs["pooled_output"] = pooler(tokens)
        if output_hidden_states:
            outputs["hidden_states"] = hidden_states
        if output_attentions:
            outputs["attention_probs"] = attention_probs
        super().__init__(
            inputs=inputs, outputs=outputs, dtype=dtype, name=name, **kwargs
        )

        # === Config ===
        self.bert_config = config
        self.embeddings = embeddings
        self._flags = {
            "output_hidden_states": output_hidden_states,
            "output_attentions": output_attentions,
            "use_position_ids": use_position_ids,
            "use_attention_mask": use_attention_mask,
            "use_pooler": use_pooler,
            "packed": packed,
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

    def enable_lora(
        self, rank: int, target_layer_names: Sequence[str] | None = None
    ) -> None:
        """KerasHub's: LoRA of queries and values; all else is frozen.

        Args:
            rank: the rank of each product.
            target_layer_names: KerasHub's argument, not taken here.

        Raises:
            ValueError: `target_layer_names` is given, or there is LoRA already.
        """
        if target_layer_names is not None:
            raise ValueError(
                "`target_layer_names` must be None: LoRA is of queries and values."
                f" Received: {target_layer_names}"
            )
        super().enable_lora(rank)
        self._flags["lora_rank"] = rank
        self._freeze_pretrained()

    def _freeze_pretrained(self) -> None:
        freeze_pretrained(
            self,
            train_layer_norms=bool(self._flags["adapter_size"]),
            train_pooler=bool(self._flags["train_pooler"]),
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, for .keras files."""
        config = super().get_config()
        config.update(config=self.bert_config.to_dict(), **self._flags)
        return config
