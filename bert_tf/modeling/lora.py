"""LoRA: the change of a frozen kernel as a product of two thin matrices.

    y = x (W + A B) + b        A [inputs, rank], B [rank, outputs]

W and b stay as they are; A begins at random (He et al. 2015), B at 0, so that training
starts from the pre-trained function (Hu et al. 2021, "LoRA: Low-rank adaptation of
large language models", section 4.1). The paper scales A B by alpha / rank, keeps alpha
at the first rank that it tries, and says that another one amounts to another learning
rate: as KerasHub, we leave the scale at 1.

The product is Keras' own (`keras.layers.Dense.enable_lora`), for the layers that
KerasHub chooses (`keras_hub.models.Backbone.enable_lora`): queries and values. The sum
of the two kernels is made once a batch, so that what uses `layer.kernel`, such as one
product for queries, keys and values, needs to know nothing of it.
"""

from typing import Any

import keras


class LowRankDense(keras.layers.Dense):
    """A dense layer whose A and B are saved as they are.

    Keras' own writes W + A B and loads it with A = B = 0: from there neither would get
    a gradient any more.
    """

    def save_own_variables(self, store: Any) -> None:
        """Keras' extension point, for .keras and .h5 files."""
        if not self.lora_enabled:
            super().save_own_variables(store)
            return
        for number, variable in enumerate(self._saved()):
            store[str(number)] = variable

    def load_own_variables(self, store: Any) -> None:
        """Keras' extension point; takes files without LoRA too."""
        if not self.lora_enabled or len(store.keys()) < len(self._saved()):
            super().load_own_variables(store)
            return
        for number, variable in enumerate(self._saved()):
            variable.assign(store[str(number)])

    def _saved(self) -> list[keras.Variable]:
        return [self._kernel, self.bias, self.lora_kernel_a, self.lora_kernel_b]
