# One rank of a trial on a GPU node: CUDA, torch, deepspeed. Build from the repository's root:
#   docker build -f docker/worker.Dockerfile -t meshwright-worker .
# The development image has nvcc, which DeepSpeed needs to compile its kernels on first use.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04

RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ ninja-build python3 python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 meshwright
WORKDIR /app
COPY pyproject.toml constraints.txt README.md ./
COPY cost_model cost_model
COPY planner planner
COPY trials trials
COPY api api
RUN python3 -m venv /opt/meshwright \
 && /opt/meshwright/bin/pip install --no-cache-dir -c constraints.txt '.[trials]'

USER meshwright
ENV PATH=/opt/meshwright/bin:$PATH
ENTRYPOINT ["python", "-m", "trials.worker"]
