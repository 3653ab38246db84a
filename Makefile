# Each target makes .venv if it is missing or out of date, then calls one of its programs. `make help` lists the targets.

define HELP
Check a unit:
  make sim       Check a unit against the golden model.
  make sweep     Compare a unit with the golden model on every input.
  make uvm       Check a unit in a pyuvm environment.
  make save      Save a vector of a unit as a regression.

Check hardware and libraries of others:
  make vectors   Write test vectors of a unit with their results.
  make check     Explain wrong results of another unit or library.

Prove units and measure the test bench:
  make formal    Prove claims about units for all inputs.
  make coverage  Count the cases of a unit that `halfulp sim` reaches.
  make mutate    Count the mutants of a unit that the test bench detects.

Write hardware:
  make emit      Write a unit as plain Verilog.
  make tile      Write systolic arrays as kernels for a board.

Measure cost and error:
  make synth     Measure the cost of a unit on a device.
  make choose    Find the smallest build of a unit that meets a clock.
  make report    Compare units by cost, error and accuracy, in tables and plots.
  make stats     Measure the statistics of stochastic rounding.
  make faults    Inject faults into a unit and count wrong results.

Study networks:
  make emulate   Run an unmodified torch program in the arithmetic of a policy.
  make train     Train a network in the arithmetic of a multiply-accumulate.
  make match     Find the arrays on a board that run a network fastest.

Keep records of the project:
  make cost      Measure the units of the cost records and write them as CSV.
  make signoff   Check every unit in every format family and write the records.
  make bench     Measure the speed of the golden model and of simulations.
  make gpu       Test and measure the kernels of a GPU, in at most 8 minutes.

Develop:
  make test      Run the tests, in 15 to 25 minutes on two cores; ARGS="-k mac" goes to pytest.
  make test-all  Run slow tests too, in about three hours; HALFULP_EXHAUSTIVE=1 takes all inputs.
  make lint      Check style, types and the order of imports.
  make docs      Build the documentation in build/docs; ARGS="-t quick" draws only quick plots and runs no notebook.
  make figures   Write the figures of the records into the pages and pictures.
  make package   Build the sdist and the wheel, and check the wheel in an empty environment.
  make clean     Remove everything that was built but .venv.

Examples:
  make sim UNIT=mac FMT=e5m2
  make sim UNIT=mac FMT=e5m2 ACC=fp16 ROUND=sr10 PRODUCT=e5m2.rz PIPELINE=2
  make sim UNIT=convert FMT=bf16 TO=e4m3fn SATURATE=1 WAVE=1
  make sim UNIT=dot FMT=posit8 K=8 ORDER=sequential
  make sim UNIT=sru FMT=int16 RANDOM=plateau3 LANES=4 INCREMENT=0
  make sim UNIT=pwl FN=tanh FMT=fxp4.12 PIECES=8 [TO=fxp1.15 SLOPES=pow2 STRUCTURE=address]
  make sim UNIT=all
  make sweep UNIT=mac FMT=e5m2 [RESTART=1]
  make uvm UNIT=mac FMT=e5m2 [SEQUENCE=storm VECTORS=500 TEST=my_tests.py:MyTest WAVE=1]
  make uvm UNIT=tile FMT=e5m2 N=3 M=2 [DEPTH=4]
  make coverage UNIT=mac FMT=e5m2 [CODE=1 OUT=folder]
  make formal [UNIT=mul FMT=e5m2 SECONDS=60 OUT=folder]
  make mutate UNIT=mac FMT=e5m2 N=200 [STREAM=1 SAVE=1 OUT=folder]
  make faults UNIT=mac FMT=e5m2 [FLIPS=1e5 STUCK=256 OUT=folder]
  make save UNIT=mac FMT=e5m2 VECTOR=0x3c,0x40,0x001 WHY="a tie"
  make vectors UNIT=mul FMT=fp16 OUT=mul.txt [VECTORS=10000 AS=txt]
  make check UNIT=mul FMT=fp16 RESULTS=mul.txt [OUT=folder]
  make emit UNIT=mac FMT=e5m2 [NAME=mac] [RESET=async-low NO_INITIAL=1] OUT=mac.v
  make emit UNIT=mac FMT=e5m2 STREAM=1 [TLAST=1 TUSER=8 TKEEP=1 REGISTERED=1 SEPARATE=1] OUT=mac_axis.v
  make emit UNIT=mul FMT=e5m2 PIPELINE=2 VALID=1 [TAG=8] OUT=mul.v
  make emit UNIT=mac FMT=e5m2 PACKAGE=1 [NAME=mac RESET=async-low ENABLE=low PORTS=clk=aclk] OUT=folder
  make emit UNIT=mac FMT=e5m2 TARGET=vu9p FLOW=vivado CLOCK=400 [DSP=1] OUT=folder
  make synth UNIT=mac FMT=fp16 TARGET=ecp5-85k [DSP=1 ROUTE=1]
  make synth UNIT=mac FMT=e5m2 TARGET=vu9p FLOW=vivado [CLOCK=400 DSP=1 OUT=folder]
  make synth UNIT=mac FMT=e5m2 TARGET=asic [LIBERTY=cells.lib DELAYS=2,3,4 POWER=1]
  make synth UNIT=all SCHEDULER=tcp://host:8786
  make choose UNIT=mul FMT=fp16 TARGET=ecp5-85k CLOCK=100 [DSP=0 STAGES=0..8 OUT=folder]
  make stats UNIT=sru [RANDOM=lfsr12 ROUNDS=5000 OUT=folder]
  make report UNIT=sru [OUT=folder SCHEDULER=tcp://host:8786]
  make report UNIT=pwl FN="tanh sigmoid" FMT=fxp4.12 PIECES=2,3,4,8,16,32 [SLOPES=pow2 OUT=folder]
  make report UNIT=examples/study.toml [OUT=folder]
  make report UNIT=accuracy [OUT=folder]
  make emulate UNIT=program.py MAC='bf16*bf16+fp32.rn, elementwise=bf16.rn' [SEED=1]
  make train UNIT=lenet5 MAC=e5m2*e5m2+e6m5.sr10 [SEED=1 EPOCHS=10 DATA=folder RESUME=1]
  make train UNIT=gru MAC=fp32 TANH=3 SIGMOID=3 [SEED=1]
  make train UNIT=my_file.py:network MAC=bf16*bf16+fp32.rn [EMULATE=1 EPOCHS=5]
  make bench [OUT=fpga/results/speed.csv]
  make match UNIT=lenet5 BOARD=u55c [MODEL=published MAC=bf16*bf16+fp32.rn BATCH=64 OUT=folder]
  make tile MAC=e5m2*e5m2+e6m5.sr10 N=8 M=8 CORES=10 BOARD=u55c OUT=folder
  make cost [SCHEDULER=tcp://host:8786]
  make signoff [UNIT="mac fma"]

A setting is an option of the same name: `make sim UNIT=mac FMT=e5m2 SEED=7` is `halfulp sim mac e5m2 --seed 7`;
.venv/bin/halfulp sim --help describes each. PYTHON=python3.12 makes .venv with that interpreter.
endef

# Settings with a value, and settings that are 0 or 1. The option has the same name, except for `others`.
values := MAC POLICY DATA DEVICE EPOCHS BATCH RATE SCALE LIMIT SECONDS EVERY RESULTS TABLE ACC PRODUCT ROUND PIPELINE SEED VECTORS B C T TO K \
	ORDER SPARSITY MULTIPLIER SHIFT CARRY TANH SIGMOID DERIVATIVE FN PIECES ERROR BREAKPOINTS SLOPES TERMS STRUCTURE LANES SHARING \
	STOCHASTIC RANDOM RANDOM_SEED ROUNDS TARGET LIBERTY DELAYS FLOW CLOCK SCHEDULER OUT BOARD MODEL N M CORES DEPTH ROWS VECTOR \
	SEQUENCE TEST AS WHY FLIPS STUCK NAME PREFIX RESET ENABLE PORTS GOAL ITERATIONS INTERLEAVE EXPLORE STAGES TUSER TAG MEASURE
flags := SATURATE SATFINITE WAVE JSON RESTART RESUME STATIC DSP ROUTE INFERENCE STREAM SAVE CODE RESET_LESS NO_INITIAL \
	TLAST TKEEP REGISTERED SEPARATE VALID EMULATE ESTIMATE SYNTH PACKAGE POWER FLAGS FLAGS_BEFORE
others := OUT:-o FLIPS:--bit-flips STUCK:--stuck-at $(if $(filter mutate,$(MAKECMDGOALS)),N:--mutants)
# Settings that are 0 or 1 and have a --no- option.
parts := INCREMENT DSP
option = $(or $(patsubst $(1):%,%,$(filter $(1):%,$(others))),--$(shell echo $(1) | tr A-Z_ a-z-))
settings := UNIT FMT $(values) $(flags) $(parts) ARGS PYTHON

.PHONY: help sim vectors check sweep uvm emit synth choose stats report emulate train match tile cost test test-all bench gpu docs figures package lint clean FORCE formal mutate faults save coverage signoff
.DEFAULT_GOAL := help

# Settings count only on the command line, not in the environment. Another variable on the command line is an error.
given = $(if $(filter command,$(firstword $(origin $(1)))),$(value $(1)))
$(foreach v,$(filter-out $(settings) -%,$(.VARIABLES)),$(if $(filter command,$(firstword $(origin $(v)))),\
	$(error $(v) is not a setting; see make help)))
$(foreach v,$(flags) $(parts),$(if $(filter-out 0 1,$(call given,$(v))),\
	$(error $(v) is 0 or 1, not $(call given,$(v)))))

quote = '$(subst ','\'',$(1))'
unit = $(if $(call given,UNIT),$(call quote,$(call given,UNIT)) $(if $(call given,FMT),$(call quote,$(call given,FMT))))
options = $(foreach s,$(values),$(if $(call given,$(s)),$(call option,$(s)) $(call quote,$(call given,$(s))))) \
	$(foreach s,$(flags),$(if $(filter 1,$(call given,$(s))),$(call option,$(s)))) \
	$(foreach s,$(parts),$(if $(filter 0,$(call given,$(s))),$(subst --,--no-,$(call option,$(s)))))

# `report pwl` takes functions as arguments and their format as an option.
ifeq ($(MAKECMDGOALS) $(call given,UNIT),report pwl)
unit = pwl $(foreach f,$(call given,FN),$(call quote,$(f))) $(if $(call given,FMT),--fmt $(call quote,$(call given,FMT)))
values := $(filter-out FN,$(values))
endif

# The programs call make and simulators, which must not inherit the settings and flags of this make.
unexport $(settings)
alone = @unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES MAKEFILES; exec

help:
	@: $(info $(HELP))

# Commands that need no more than simulations do.
sim vectors check sweep emit stats save: .venv/sim
uvm synth choose report train match tile formal mutate faults coverage: .venv/ready
sim vectors check sweep emit stats save uvm synth choose report train match tile formal mutate faults coverage:
	$(alone) .venv/bin/halfulp $@ $(unit) $(options)

# Options behind a program are its own.
emulate: .venv/ready
	$(alone) .venv/bin/halfulp emulate $(options) $(unit)

# Default folder: the records of the project.
cost: .venv/ready
	$(alone) .venv/bin/halfulp cost $(if $(call given,OUT),,-o fpga/results) $(options)

# The oracle tests run if no UNIT is given; default folder: the project's own records.
signoff: .venv/ready
	@mkdir -p build
	$(if $(call given,UNIT),,$(alone) .venv/bin/pytest -q -n auto -o junit_family=xunit1 tests/oracles --junitxml=build/oracles.xml)
	$(alone) .venv/bin/halfulp signoff $(foreach u,$(call given,UNIT),$(call quote,$(u))) \
		$(if $(call given,UNIT),,--oracles build/oracles.xml) $(if $(call given,OUT),,-o sim/results) $(options)

bench: .venv/ready
	$(alone) .venv/bin/halfulp bench $(options)

gpu: .venv/ready
	$(alone) .venv/bin/halfulp bench --gpu $(options)

test: .venv/ready
	$(alone) .venv/bin/pytest -n auto --dist worksteal -m "not slow" $(call given,ARGS)

test-all: .venv/ready
	$(alone) .venv/bin/pytest -n auto --dist worksteal $(call given,ARGS)

docs: .venv/docs
	$(alone) .venv/bin/python -m sphinx -b html -W --keep-going -q docs build/docs $(call given,ARGS)

figures: .venv/ready
	$(alone) .venv/bin/python docs/figures.py --renew
	$(alone) .venv/bin/python docs/pictures.py

package: .venv/ready
	$(alone) .ci/package

# Run all checks, then fail if one failed.
lint: .venv/ready
	@failed=0; \
	.venv/bin/ruff check . || failed=1; \
	.venv/bin/ruff format --check . || failed=1; \
	.venv/bin/lint-imports --no-cache || failed=1; \
	.venv/bin/mypy || failed=1; \
	exit $$failed

clean:
	@rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis halfulp.egg-info
	@find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

# .ci/setup makes .venv again if its sources changed, or if the folder or the interpreter is another one.
.venv/sim: .ci/sim.lock
.venv/ready: .ci/requirements.lock
.venv/docs: .ci/docs.lock .venv/ready
.venv/sim .venv/ready .venv/docs: pyproject.toml halfulp/__init__.py .ci/setup .ci/setup.py
	@.ci/setup $(call quote,$(PYTHON)) $(@F)
ifneq ($(PYTHON),)
.venv/sim .venv/ready: FORCE
endif
ifeq ($(findstring [$(CURDIR)],$(file <.venv/ready)),)
.venv/ready: FORCE
endif
ifeq ($(findstring [$(CURDIR)],$(file <.venv/sim)),)
.venv/sim: FORCE
endif
