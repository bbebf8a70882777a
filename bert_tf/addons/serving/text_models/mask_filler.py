"""Masked language models: tokens for [MASK]."""

from bert_tf.addons.serving.fill_mask import Guess, fill_masks
from bert_tf.addons.serving.text_models.model import TextModel, Texts, is_empty
from bert_tf.conversion import names
from bert_tf.conversion.source import load_tokenizer
from bert_tf.text.wordpiece import text_pairs


class MaskFiller(TextModel):
    """A masked language model: `fill` and `embed`.

    Examples:
        >>> model = bert_tf.load("pretrained")
        >>> guesses = model.fill("A good [MASK]", top_k=3)[0][0]  # of the first mask
        >>> len(guesses)
        3
    """

    head = "a masked language model"
    methods = ("fill",)
    head_name = names.MASKED_LM
    _has_positions = True

    def _prepare(self) -> None:
        self._mask_tokenizer = load_tokenizer(
            self.source, recognize_special_tokens=True
        )

    def fill(self, texts: Texts, *, top_k: int = 5) -> list[list[list[Guess]]]:
        """Returns the likeliest tokens for each [MASK], as fill_mask does."""
        if is_empty(texts):
            return []
        return fill_masks(
            self.model,
            self._mask_tokenizer,
            [text for text, _ in text_pairs(texts, None)],
            top_k=top_k,
            batch_size=self._batch_size,
            predict=self._step,
        )
