"""BERT in plain numpy and float64, from the equations of its papers.

Vaswani et al. 2017 (attention, section 3.2; feed-forward, 3.3), Devlin et al. 2018
(embeddings, figure 2; pre-training, section 3.1), Ba et al. 2016 (layer normalization),
Hendrycks and Gimpel 2016 (GELU), Houlsby et al. 2019 (adapters, section 2.1), Hu et al.
2021 (LoRA, section 4.1), Peters et al. 2018 (mixture of layers, section 3.2), Lan et
al. 2019 (shared layers and embeddings of another size, section 3.1). One sequence at a
time and one head at a time: slow, and unlike the code that it checks. Weights are a
dict by the original's variable names.
"""

import math

import numpy as np


def sequence_outputs(weights, config, record):
    """hidden_states (embeddings and every layer) and attention_probs of one sequence.

    `record` holds vectors input_ids, input_mask, segment_ids, and may hold position_ids
    and a matrix attention_mask.
    """
    length = len(record["input_ids"])
    position_ids = record.get("position_ids", range(length))
    sees = np.ones((length, length)) * np.asarray(record["input_mask"])[None, :]
    if "attention_mask" in record:
        sees = sees * record["attention_mask"]
    table = "bert/embeddings/{}_embeddings"
    x = np.stack(
        [
            weights[table.format("word")][word]
            + weights[table.format("token_type")][segment]
            + weights[table.format("position")][position]
            for word, segment, position in zip(
                record["input_ids"], record["segment_ids"], position_ids, strict=True
            )
        ]
    ).astype(np.float64)
    epsilon = config.layer_norm_eps
    hidden_states = [layer_norm(weights, "bert/embeddings/LayerNorm", x, epsilon)]
    mapping = "bert/encoder/embedding_hidden_mapping_in"
    if f"{mapping}/kernel" in weights:
        hidden_states = [dense(weights, mapping, hidden_states[0])]
    if config.num_hidden_groups:
        weights = with_layers_of_their_own(weights, config.num_hidden_layers)
    attention_probs = []
    for i in range(config.num_hidden_layers):
        x, probabilities = transformer_layer(
            weights, config, f"bert/encoder/layer_{i}", hidden_states[-1], sees
        )
        hidden_states.append(x)
        attention_probs.append(probabilities)
    return hidden_states, attention_probs


def with_layers_of_their_own(weights, num_layers):
    """ALBERT's weights with those of its one layer as each of BERT's layers."""
    shared = "bert/encoder/transformer/group_0/inner_group_0/"
    places = {
        "attention_1/": "attention/",
        "LayerNorm/": "attention/output/LayerNorm/",
        "LayerNorm_1/": "output/LayerNorm/",
        "ffn_1/intermediate/dense/": "intermediate/dense/",
        "ffn_1/intermediate/output/": "output/",
    }
    found = dict(weights)
    for name, array in weights.items():
        rest = name.removeprefix(shared)
        for there, here in places.items():
            if rest != name and rest.startswith(there):
                for layer in range(num_layers):
                    path = f"bert/encoder/layer_{layer}/{here}"
                    found[path + rest.removeprefix(there)] = array
    return found


def transformer_layer(weights, config, scope, x, sees):
    size = config.hidden_size // config.num_attention_heads
    query, key, value = (
        dense(weights, f"{scope}/attention/self/{name}", x)
        for name in ("query", "key", "value")
    )
    heads, probabilities = [], []
    for head in range(config.num_attention_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = query[:, columns] @ key[:, columns].T / math.sqrt(size)
        scores = np.where(sees == 1, scores, scores - 10000.0)
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities.append(exponentials / exponentials.sum(axis=1, keepdims=True))
        heads.append(probabilities[-1] @ value[:, columns])
    attended = dense(
        weights, f"{scope}/attention/output/dense", np.concatenate(heads, 1)
    )
    attended = adapted(weights, f"{scope}/attention/output/adapter", attended)
    epsilon = config.layer_norm_eps
    x = layer_norm(
        weights, f"{scope}/attention/output/LayerNorm", x + attended, epsilon
    )
    inner = activation(
        config.hidden_act, dense(weights, f"{scope}/intermediate/dense", x)
    )
    fed_forward = dense(weights, f"{scope}/output/dense", inner)
    fed_forward = adapted(weights, f"{scope}/output/adapter", fed_forward)
    return (
        layer_norm(weights, f"{scope}/output/LayerNorm", x + fed_forward, epsilon),
        np.stack(probabilities),
    )


def adapted(weights, scope, x):
    """An adapter's output, where there is one."""
    if f"{scope}/down/kernel" not in weights:
        return x
    inner = activation("gelu", dense(weights, f"{scope}/down", x))
    return x + dense(weights, f"{scope}/up", inner)


def mixed_layers(weights, hidden_states):
    """The mixture of the embeddings and all layers, whose scores count 100 times."""
    powers = [math.exp(100.0 * s) for s in weights["bert/layer_mixture/scores"]]
    mixture = sum(
        power / sum(powers) * states
        for power, states in zip(powers, hidden_states, strict=True)
    )
    return weights["bert/layer_mixture/gamma"] * mixture


def pooled_output(weights, sequence_output):
    return np.tanh(dense(weights, "bert/pooler/dense", sequence_output[:1]))[0]


def masked_lm_logits(weights, config, sequence_output, positions):
    scope = "cls/predictions"
    hidden_act, epsilon = config.masked_lm_hidden_act, config.masked_lm_layer_norm_eps
    if hidden_act is None:
        hidden_act = config.hidden_act
    if epsilon is None:
        epsilon = config.layer_norm_eps
    rows = []
    for position in positions:
        x = dense(weights, f"{scope}/transform/dense", sequence_output[position][None])
        x = activation(hidden_act, x)
        x = layer_norm(weights, f"{scope}/transform/LayerNorm", x, epsilon)
        rows.append(
            weights["bert/embeddings/word_embeddings"].astype(np.float64) @ x[0]
            + weights[f"{scope}/output_bias"]
        )
    return np.stack(rows)


def output_logits(weights, scope, hidden):
    """Of `scope`output_weights [outputs, inputs] and `scope`output_bias."""
    return weights[f"{scope}output_weights"] @ hidden + weights[f"{scope}output_bias"]


def token_logits(weights, scope, sequence_output):
    """`output_logits` of every token."""
    return np.stack([output_logits(weights, scope, x) for x in sequence_output])


def dense(weights, scope, x):
    y = x @ weights[f"{scope}/kernel"].astype(np.float64) + weights[f"{scope}/bias"]
    if f"{scope}/lora_kernel_a" in weights:
        thin = x @ weights[f"{scope}/lora_kernel_a"].astype(np.float64)
        y = y + thin @ weights[f"{scope}/lora_kernel_b"]
    return y


def lstm(weights, scope, x):
    """Hochreiter and Schmidhuber 1997 with forget gates; gates i, f, candidate, o."""
    kernel, recurrent, bias = (
        weights[f"{scope}/lstm_cell/{name}"]
        for name in ("kernel", "recurrent_kernel", "bias")
    )
    hidden = cell = np.zeros(len(recurrent))
    outputs = []
    for step in x:
        i, f, g, o = np.split(step @ kernel + hidden @ recurrent + bias, 4)
        i, f, o = (1.0 / (1.0 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        hidden = o * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs)


def layer_norm(weights, scope, x, epsilon):
    rows = []
    for row in x:
        centered = row - row.mean()
        deviation = math.sqrt((centered**2).mean() + epsilon)
        rows.append(
            weights[f"{scope}/gamma"] * centered / deviation + weights[f"{scope}/beta"]
        )
    return np.stack(rows)


def activation(name, x):
    return {
        "gelu": lambda x: (
            0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        ),
        "gelu_erf": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
        "relu": lambda x: np.where(x > 0, x, 0.0),
        "tanh": np.tanh,
        "linear": lambda x: x,
    }[name](x)
