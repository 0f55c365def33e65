"""Graphs of other programs as operator graphs: ONNX files and exported PyTorch programs, read without execution."""
