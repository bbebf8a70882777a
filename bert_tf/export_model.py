r"""Writes a checkpoint in another format: for the original, transformers, a server.

    python -m bert_tf.export_model --checkpoint=/tmp/mrpc_output \
        --format=huggingface --output_dir=/tmp/mrpc_transformers

The checkpoint may be a run's output_dir, a TF1 release, a Hugging Face folder or a
KerasHub preset. Formats:

    tf1          bert_model.ckpt, for google-research/bert and every converter
    huggingface  for transformers, with the head
    kerashub     for keras_hub.models.BertBackbone: the encoder
    saved_model  for TensorFlow Serving: takes raw text
    litert       for phones and other devices, by LiteRT's own operations; takes ids
    onnx         for ONNX Runtime, OpenVINO, Optimum: takes ids
    peft         for peft.PeftModel: the matrices of a run with --lora_rank, its head
    sentence_transformers    the encoder, with the pooling of a run of run_embeddings
"""

from bert_tf.addons.serving import export_model
from bert_tf.addons.serving.export_model import ExportOptions
from bert_tf.base import cli


def run(options: ExportOptions) -> None:
    """Reads and checks the checkpoint, and writes it in the other format."""
    export_model.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
