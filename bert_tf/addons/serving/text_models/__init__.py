"""From texts to predictions: a checkpoint of any format, opened for use.

    model = bert_tf.load("/tmp/mrpc_output")
    model.predict(["He said so."], ["So he said."])[0].label

What a checkpoint can do depends on its head:

    classifier       TextClassifier      predict, explain
    masked LM        MaskFiller          fill
    span (SQuAD)     QuestionAnswerer    answer, explain
    choices (SWAG)   ChoiceModel         choose
    tagging          WordTagger          tag, explain
    any, or none     TextModel           embed

Models run with ONNX Runtime where it is installed (`pip install 'bert-tf[serve]'`) and
there is no accelerator, else with Keras: see `load`'s `runtime`.

Lengths, windows and thresholds are read from the run's reading.json, so predictions
equal the commands'. Each method takes a list of texts, or one str as a list of one,
makes batches of similar length, and returns one result for each text; `explain` takes
one text, and always uses Keras.

Shapes: N texts, C outputs, H hidden.
"""
