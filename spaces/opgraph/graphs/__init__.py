"""Graphs of other programs as layer-by-layer models: ONNX files and exported PyTorch programs. None of it is run."""
