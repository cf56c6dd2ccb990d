# Three images of rljob: `--target operator` (controller and command line), `--target worker-cpu` and `--target worker-gpu` (every role).
# docs/images.md says how to build them, what is in each and how to add an environment.
#
# What changes together is a layer of its own: the dependencies (a virtual environment), then rljob itself, which is small.

ARG BASE_IMAGE=python:3.11-slim-bookworm

# --- what each image needs, read from pyproject.toml; later stages depend on these few lines, not on the whole file
FROM ${BASE_IMAGE} AS requirements
WORKDIR /requirements
COPY pyproject.toml .
RUN python3 -c "import pathlib, tomllib; \
project = tomllib.loads(pathlib.Path('pyproject.toml').read_text())['project']; \
extras = project['optional-dependencies']; \
pathlib.Path('operator.txt').write_text('\n'.join(project['dependencies'] + extras['optuna']) + '\n'); \
pathlib.Path('worker.txt').write_text('\n'.join(project['dependencies'] + extras['worker'] + extras['s3']) + '\n'); \
pathlib.Path('gpu.txt').write_text('\n'.join(extras['gpu']) + '\n')" \
 && rm pyproject.toml

# --- the virtual environments; SOURCE_DATE_EPOCH ties byte code to its source's hash instead of its time, so that it is the same in
# every build
FROM ${BASE_IMAGE} AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=1700000000
COPY constraints.txt /constraints.txt

FROM builder AS operator-dependencies
COPY --from=requirements /requirements/operator.txt /requirements.txt
RUN python3 -m venv /tools && python3 -m venv --without-pip /opt/rljob \
 && /tools/bin/pip --python /opt/rljob/bin/python install -c /constraints.txt -r /requirements.txt
# The Kubernetes client loads the type of an object, and the calls of a group, when it is first used. The operator asks for three
# of 1,800, so their byte code is left out; the sources are there, and an import of one waits for its compilation.
RUN find /opt/rljob/lib -path '*/kubernetes/*' \( -path '*/client/api/*' -o -path '*/client/models/*' \) \
    -name '*.pyc' ! -name '__init__.*' -delete

FROM builder AS torch-cpu
# Where wheels of torch without CUDA come from; empty: from the package index that pip is configured with.
ARG TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/rljob \
 && /opt/rljob/bin/pip install ${TORCH_CPU_INDEX:+--index-url $TORCH_CPU_INDEX} --no-deps -c /constraints.txt torch

FROM torch-cpu AS worker-cpu-dependencies
COPY --from=requirements /requirements/worker.txt /requirements.txt
RUN /opt/rljob/bin/pip install -c /constraints.txt -r /requirements.txt \
 && /opt/rljob/bin/python -c "import sys, torch; \
sys.exit(torch.version.cuda and f'worker-cpu got torch for CUDA {torch.version.cuda}; TORCH_CPU_INDEX must name an index of CPU wheels')"
RUN /opt/rljob/bin/pip freeze > /opt/rljob/installed.txt

FROM builder AS torch-gpu
# The same for CUDA. Empty: the build for the newest CUDA, from the index that pip is configured with.
ARG TORCH_GPU_INDEX=
RUN python3 -m venv /opt/rljob \
 && /opt/rljob/bin/pip install ${TORCH_GPU_INDEX:+--index-url $TORCH_GPU_INDEX} --no-deps -c /constraints.txt torch

FROM torch-gpu AS worker-gpu-dependencies
COPY --from=requirements /requirements/worker.txt /requirements/gpu.txt /requirements/
RUN /opt/rljob/bin/pip install -c /constraints.txt -r /requirements/worker.txt -r /requirements/gpu.txt \
 && /opt/rljob/bin/python -c "import sys, torch; \
sys.exit(None if torch.version.cuda else 'worker-gpu got torch without CUDA; TORCH_GPU_INDEX must name an index of CUDA wheels')"
RUN /opt/rljob/bin/pip freeze > /opt/rljob/installed.txt

# --- rljob itself, laid out as it goes into those environments
FROM builder AS sources
RUN python3 -m venv /opt/rljob && /opt/rljob/bin/pip install -c /constraints.txt --upgrade setuptools
WORKDIR /sources
COPY pyproject.toml README.md LICENSE ./
COPY workers workers
COPY operator operator
COPY manifests/examples manifests/examples
COPY manifests/zoo manifests/zoo
COPY examples examples
RUN /opt/rljob/bin/pip install --no-deps --no-build-isolation --prefix /rljob .

# --- the first process of a worker's container: it takes in the processes that environments leave behind, and passes signals on
FROM ${BASE_IMAGE} AS init
RUN apt-get update && apt-get install --yes --no-install-recommends tini

# --- what runs: files that are root's alone, a user with a number, and nothing written but in /tmp and /var/lib/rljob
FROM ${BASE_IMAGE} AS runtime
RUN echo 'rljob:x:10001:10001:rljob:/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'rljob:x:10001:' >> /etc/group \
 && install --directory --owner=10001 --group=10001 /var/lib/rljob
ENV PATH=/opt/rljob/bin:/opt/extra/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1
# While libzmq asks for the name of a peer that is gone, nothing else goes over its sockets: a name server that does not answer is
# waited for 1 s, not 5 s.
ENV RES_OPTIONS="timeout:1 attempts:3"
WORKDIR /var/lib/rljob
USER 10001:10001
ENTRYPOINT ["rljob"]
CMD ["--help"]

# A worker's environments may start programs of their own. Where such an environment is killed, its program ends as a child of the
# container's first process, and Python does not collect children that it has not started: they would stay as zombies.
#
# `pip install` in an image made FROM a worker adds to /opt/extra, which is the user's, and finds what is installed already; it cannot
# replace what rljob was tested with, which is root's, so it is told to choose releases that go with that. A file that is copied to
# /opt/plugins can be imported, too.
FROM runtime AS worker
USER 0:0
RUN install --directory --owner=10001 --group=10001 /opt/extra /opt/plugins \
 && packages=lib/python$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages \
 && mkdir --parents /opt/rljob/$packages \
 && printf "import site; site.addsitedir('/opt/extra/$packages')\n/opt/plugins\n" > /opt/rljob/$packages/extra.pth \
 && printf '[global]\nno-cache-dir = true\ndisable-pip-version-check = true\n[install]\nprefix = /opt/extra\nconstraint = /opt/rljob/installed.txt\n' > /opt/rljob/pip.conf
COPY --from=init /usr/bin/tini-static /usr/bin/tini
USER 10001:10001
ENTRYPOINT ["tini", "--", "rljob"]
CMD ["--help"]

FROM runtime AS operator
COPY --from=operator-dependencies /opt/rljob /opt/rljob
COPY --from=sources /rljob /opt/rljob
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="rljob operator" \
      org.opencontainers.image.description="Controller and command line of rljob, without the data plane" \
      org.opencontainers.image.version="$VERSION" org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM worker AS worker-cpu
COPY --from=worker-cpu-dependencies /opt/rljob /opt/rljob
COPY --from=sources /rljob /opt/rljob
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="rljob worker (CPU)" \
      org.opencontainers.image.description="Every role of an RLJob, with torch for the CPU" \
      org.opencontainers.image.version="$VERSION" org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM worker AS worker-gpu
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=worker-gpu-dependencies /opt/rljob /opt/rljob
COPY --from=sources /rljob /opt/rljob
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="rljob worker (GPU)" \
      org.opencontainers.image.description="Every role of an RLJob, with torch for CUDA" \
      org.opencontainers.image.version="$VERSION" org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="Apache-2.0"
