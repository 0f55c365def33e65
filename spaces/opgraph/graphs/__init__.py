"""Graphs of other programs as operator graphs: ONNX files and exported PyTorch programs. None of it is run."""
