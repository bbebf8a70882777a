"""A head that the package lacks: a number, and how far off it may be.

The model predicts the mean and the variance of a normal distribution (Nix and Weigend
1994). This folder is all of it, and is outside bert_tf: the row below, the model, its
task and command, what it predicts of texts, and its SavedModel. Importing the folder
adds the head, as one of your own is added, before TensorFlow is imported.
"""

from bert_tf.conversion import names

NORMAL = "normal distribution"

if NORMAL not in names.HEADS:
    names.register(
        names.Head(
            name=NORMAL,
            weights=(
                names.Name("cls/normal/output_weights", "2 H", "normal.weight"),
                names.Name("cls/normal/output_bias", "2", "normal.bias"),
            ),
            is_pooled=True,
            model=f"{__name__}.model:BertNormal",
            objective=f"{__name__}.model:OBJECTIVE",
            task=f"{__name__}.task:NormalTask",
            text_model=f"{__name__}.text_model:NormalModel",
            reader=f"{__name__}.text_model:NormalReader",
            server=f"{__name__}.served:ServedNormal",
            onnx=f"{__name__}.text_model:add_outputs",
        )
    )
