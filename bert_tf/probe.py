r"""Probes how well labels of words can be predicted from each layer of a model.

    python -m bert_tf.probe --init_checkpoint=/tmp/pretraining_output \
        --train_file=$CONLL_DIR/eng.train --test_file=$CONLL_DIR/eng.testa \
        --label_column=1 --output_dir=/tmp/probing

It trains a linear probe on each layer's word vectors, and one for a control task with
random labels (Hewitt and Liang 2019), prints their accuracies, and writes them to
probing.md, probing.json and, as a picture, probing.png. Started again, it reuses the
vectors.
"""

from bert_tf.addons.study import probe
from bert_tf.addons.study.probe import ProbeOptions
from bert_tf.base import cli


def run(options: ProbeOptions) -> None:
    """Computes the vectors, trains the probes, and reports their accuracies."""
    probe.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
