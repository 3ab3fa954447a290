import sys

from tests.ingest.page_kernels import run

run(sys.argv[1])
