"""Quantized networks in ONNX: import of graphs, and export of converted layers."""

from .export import export_onnx
from .graph import OnnxModel, import_onnx

__all__ = ["OnnxModel", "export_onnx", "import_onnx"]
