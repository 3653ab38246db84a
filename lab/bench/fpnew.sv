// FPnew with plain ports. `halfulp report peers` measures these modules with the sources of FPnew.

// One operation of a format with its rounding mode as an input. Without _flags in the name, its flags are not
// connected, so they cost nothing.
`define FPNEW_FMA(NAME, FORMAT, OPERATION, REGISTERS) \
module NAME``_flags ( \
  input logic clk_i, \
  input logic [2:0][fpnew_pkg::fp_width(FORMAT)-1:0] operands_i, \
  input logic [2:0] rnd_mode_i, \
  output logic [fpnew_pkg::fp_width(FORMAT)-1:0] result_o, \
  output logic [4:0] status_o \
); \
  fpnew_fma #( \
    .FpFormat(FORMAT), .NumPipeRegs(REGISTERS), .PipeConfig(fpnew_pkg::DISTRIBUTED), .TagType(logic), .AuxType(logic) \
  ) i_fma ( \
    .rst_ni(1'b1), .is_boxed_i('1), .rnd_mode_i(fpnew_pkg::roundmode_e'(rnd_mode_i)), \
    .op_i(fpnew_pkg::OPERATION), .op_mod_i(1'b0), .tag_i(1'b0), .mask_i(1'b1), .aux_i(1'b0), \
    .in_valid_i(1'b1), .out_ready_i(1'b1), .flush_i(1'b0), .reg_ena_i('0), \
    .in_ready_o(), .extension_bit_o(), .tag_o(), .mask_o(), .aux_o(), .out_valid_o(), .busy_o(), .* \
  ); \
endmodule \
module NAME ( \
  input logic clk_i, \
  input logic [2:0][fpnew_pkg::fp_width(FORMAT)-1:0] operands_i, \
  input logic [2:0] rnd_mode_i, \
  output logic [fpnew_pkg::fp_width(FORMAT)-1:0] result_o \
); \
  NAME``_flags i_flags (.status_o(), .*); \
endmodule

`FPNEW_FMA(fpnew_mul_e5m2, fpnew_pkg::FP8, MUL, 0)
`FPNEW_FMA(fpnew_mul_fp16, fpnew_pkg::FP16, MUL, 0)
`FPNEW_FMA(fpnew_mul_bf16, fpnew_pkg::FP16ALT, MUL, 0)
`FPNEW_FMA(fpnew_add_e5m2, fpnew_pkg::FP8, ADD, 0)
`FPNEW_FMA(fpnew_add_fp16, fpnew_pkg::FP16, ADD, 0)
`FPNEW_FMA(fpnew_add_bf16, fpnew_pkg::FP16ALT, ADD, 0)
`FPNEW_FMA(fpnew_fma_e5m2, fpnew_pkg::FP8, FMADD, 0)
`FPNEW_FMA(fpnew_fma_fp16, fpnew_pkg::FP16, FMADD, 0)
`FPNEW_FMA(fpnew_fma_bf16, fpnew_pkg::FP16ALT, FMADD, 0)
`FPNEW_FMA(fpnew_fma_fp16_1, fpnew_pkg::FP16, FMADD, 1)
`FPNEW_FMA(fpnew_fma_fp16_2, fpnew_pkg::FP16, FMADD, 2)
`FPNEW_FMA(fpnew_fma_fp16_3, fpnew_pkg::FP16, FMADD, 3)
`FPNEW_FMA(fpnew_fma_fp16_6, fpnew_pkg::FP16, FMADD, 6)

// All operations for registers of 32 bits, without registers but those of the divider.

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
