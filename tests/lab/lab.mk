# The lab: nodes on this machine (tests/lab/README.md). All of it needs root.
LAB_PYTHON = $(BIN)/python
# Up to two of them have the virtual machines, the others all other nodes. On two cores four at once take 1,035 s. With
# five the load was 20, and a test of times failed.
LAB_AT_ONCE ?= 4
LAB_TESTS ?= tests/lab tests/unit -m 'lab or long'
NODES ?= 3
VMS ?= 0
DOCKER ?=
N ?= 1
C ?=

.PHONY: lab lab-up lab-ssh lab-down lab-faults
lab: system setup  ## build racks on this machine and run the whole product against them; LAB_TESTS=tests/lab/test_bringup.py: that part
	$(LAB_PYTHON) -m tests.twice -q -n $(LAB_AT_ONCE) --dist loadgroup --no-loadscope-reorder $(LAB_TESTS)
lab-up: setup  ## leave a rack of NODES=3 standing, with VMS=2 virtual machines, DOCKER=1 for jobs in containers
	$(LAB_PYTHON) -m tests.lab up --nodes $(NODES) --vms $(VMS) $(if $(DOCKER),--docker)
lab-ssh:  ## log in to node N=1 of the standing rack, by number or name; C='hostname' runs that
	@$(LAB_PYTHON) -m tests.lab ssh $(N) $(if $(C),'$(C)')
lab-down:  ## end the standing rack
	$(LAB_PYTHON) -m tests.lab down
lab-faults: setup  ## play every fault of tests/lab/faults/table.toml; prints the table and keeps it in docs/reference/faults.md
	$(LAB_PYTHON) -m tests.lab.faults
