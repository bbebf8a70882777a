"""A base and an adapter together: the classifier that was trained."""

from bert_tf.conversion.adapter_files import load_adapter, open_adapter
from bert_tf.conversion.checkpoint import load_weights
from bert_tf.conversion.source import Source, open_source
from bert_tf.modeling.heads import BertClassifier


def load_adapted_classifier(path: str | Source, adapter: str) -> BertClassifier:
    """A classifier from a base's checkpoint and what was trained beside it.

    Args:
        path: the base, as for `open_source`, or the opened checkpoint.
        adapter: OUTPUT_DIR/adapter of a run with --lora_rank or --adapter_size.

    Raises:
        InputError: one of them cannot be read, or they do not fit each other.
    """
    source = open_source(path) if isinstance(path, str) else path
    opened = open_adapter(adapter)
    model = BertClassifier(
        source.require_config(),
        max(1, len(opened.labels)),
        problem_type=opened.problem_type,
        **opened.model,
    )
    load_weights(model, source, init_head=False)
    load_adapter(model, opened)
    return model
