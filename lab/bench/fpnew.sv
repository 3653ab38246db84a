// FPnew for registers of 32 bits, with plain ports and without registers but those of its divider:
// halfulp report peers lab/bench/fpnew.sv FILES --top fpnew_fp32 --include pulp_platform_common_cells/include
// FILES are those of rtl/vendor that cv32e40p_fpu_manifest.flist of CV32E40P lists.

`define FPNEW(NAME, VECTORS, FORMATS, INTEGERS, DIVISION) \
module NAME ( \
  input logic clk_i, rst_ni, \
  input logic [2:0][31:0] operands_i, \
  input logic [2:0] rnd_mode_i, \
  input logic [3:0] op_i, \
  input logic op_mod_i, \
  input logic [2:0] src_fmt_i, dst_fmt_i, \
  input logic [1:0] int_fmt_i, \
  input logic vectorial_op_i, tag_i, in_valid_i, flush_i, out_ready_i, \
  output logic in_ready_o, tag_o, out_valid_o, busy_o, \
  output logic [31:0] result_o, \
  output logic [4:0] status_o \
); \
  localparam fpnew_pkg::fpu_features_t FEATURES = '{ \
    Width: 32, EnableVectors: VECTORS, EnableNanBox: 1, FpFmtMask: FORMATS, IntFmtMask: INTEGERS \
  }; \
  localparam fpnew_pkg::fpu_implementation_t IMPLEMENTATION = '{ \
    PipeRegs: '{default: 0}, \
    UnitTypes: '{ \
      '{default: fpnew_pkg::MERGED}, '{default: fpnew_pkg::DIVISION}, \
      '{default: fpnew_pkg::PARALLEL}, '{default: fpnew_pkg::MERGED} \
    }, \
    PipeConfig: fpnew_pkg::AFTER \
  }; \
  fpnew_top #( \
    .Features(FEATURES), .Implementation(IMPLEMENTATION), .PulpDivsqrt(1'b0), .TagType(logic) \
  ) i_fpnew ( \
    .rnd_mode_i(fpnew_pkg::roundmode_e'(rnd_mode_i)), .op_i(fpnew_pkg::operation_e'(op_i)), \
    .src_fmt_i(fpnew_pkg::fp_format_e'(src_fmt_i)), .dst_fmt_i(fpnew_pkg::fp_format_e'(dst_fmt_i)), \
    .int_fmt_i(fpnew_pkg::int_format_e'(int_fmt_i)), .simd_mask_i('0), .* \
  ); \
endmodule

// Formats are FP32, FP64, FP16, FP8 and FP16ALT, and integers have 8, 16, 32 and 64 bits.
`FPNEW(fpnew_fp32, 0, 5'b10000, 4'b0010, DISABLED)
`FPNEW(fpnew_fp32_divide, 0, 5'b10000, 4'b0010, MERGED)
`FPNEW(fpnew_formats, 1, 5'b10111, 4'b1110, DISABLED)
