"""The likeliest tokens for each [MASK] of a text."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.base.options import option
from bert_tf.base.shared_options import SourceOptions

if TYPE_CHECKING:
    import numpy as np

    from bert_tf.modeling.heads import BertPretrainer
    from bert_tf.text.wordpiece import WordPieceTokenizer


class Guess(NamedTuple):
    """A token for a blank, and its probability."""

    token: str
    probability: float


class FillMaskOptions(SourceOptions):
    """The model, and the texts with blanks."""

    top_k: int = option(
        5, "How many tokens to print for each blank.", least=1, decides="nothing"
    )


def fill_masks(
    model: "BertPretrainer",
    tokenizer: "WordPieceTokenizer",
    texts: Sequence[str],
    *,
    top_k: int = 5,
    batch_size: int = 32,
    predict: Callable[[dict[str, "np.ndarray"]], Mapping[str, Any]] | None = None,
) -> list[list[list[Guess]]]:
    """Returns the likeliest tokens for each [MASK] of some texts."""
    # `predict` is the model's prediction step, if there is one.
    import numpy as np

    if not model.bert_config.is_bidirectional:
        raise InputError(
            "The model reads in one direction (see its bert_config.json): it predicts"
            " the next token, and knows no [MASK]."
        )
    predict = predict or functools.partial(model, training=False)
    vocabulary = tokenizer.vocabulary
    longest = model.bert_config.max_position_embeddings
    lengths = []
    for text in texts:
        ids = tokenizer.encode(text)
        if vocabulary.mask_id not in ids:
            raise InputError(f"No [MASK] in the text: {text!r}. Write it for a word.")
        if len(ids) + 2 > longest:
            raise InputError(
                f"The text has {len(ids) + 2} tokens with [CLS] and [SEP]; the model"
                f" takes {longest}."
            )
        lengths.append(len(ids))
    found: list[list[list[Guess]]] = [[] for _ in texts]
    order = np.argsort(lengths, kind="stable").tolist()
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        inputs = tokenizer([texts[row] for row in rows], max_length=max(longest, 5))
        is_mask = inputs["input_ids"] == vocabulary.mask_id
        counts = is_mask.sum(axis=1)
        # The masks' places come first, in order, then those of other tokens.
        positions = np.argsort(~is_mask, axis=1, kind="stable")[:, : counts.max()]
        inputs["masked_lm_positions"] = positions.astype(np.int32)
        outputs = predict(inputs)
        logits = np.asarray(outputs["masked_lm_logits"], np.float64)
        logits = logits[..., : len(vocabulary)]
        probabilities = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        for row, count, of_text in zip(rows, counts, probabilities, strict=True):
            best = np.argsort(-of_text[:count], kind="stable")[:, :top_k]
            found[row] = [
                [
                    Guess(token, float(of_blank[token_id]))
                    for token_id, token in zip(
                        ids, tokenizer.convert_ids_to_tokens(ids), strict=True
                    )
                ]
                for ids, of_blank in zip(best.tolist(), of_text, strict=False)
            ]
    return found


def show(text: str, guesses: Sequence[Sequence[Guess]]) -> str:
    """Formats guesses as readable text: a block for each blank."""
    lines = [text]
    for number, blank in enumerate(guesses, start=1):
        if len(guesses) > 1:
            lines.append(f"  [MASK] {number}")
        lines += [f"  {guess.probability:7.2%}  {guess.token}" for guess in blank]
    return "\n".join(lines)


def run(options: FillMaskOptions) -> None:
    """Prints the guesses for each text."""
    texts = options.positional
    if not texts:
        raise InputError(
            "Give a text: python -m bert_tf.fill_mask --checkpoint=DIR"
            ' "Text with [MASK]."'
        )
    for text in texts:
        if "[MASK]" not in text:
            raise InputError(f"No [MASK] in the text: {text!r}. Write it for a word.")
    cli.import_tensorflow(options)
    from bert_tf.conversion.export import source_of
    from bert_tf.conversion.loading import load_pretrainer
    from bert_tf.conversion.source import load_tokenizer

    source = source_of(options)
    tokenizer = load_tokenizer(source, recognize_special_tokens=True)
    model = load_pretrainer(source)
    found = fill_masks(model, tokenizer, texts, top_k=options.top_k)
    for text, guesses in zip(texts, found, strict=True):
        print(show(text, guesses))
