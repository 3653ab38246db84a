"""Quantized networks in ONNX: import of graphs, and export of converted layers."""

from .graph import OnnxModel, import_onnx

__all__ = ["OnnxModel", "import_onnx"]
