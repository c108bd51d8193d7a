# liverl-tui in a container: `docker build -t liverl-tui .`, then `docker run -it --rm liverl-tui demo`.
# BASE: any image with Python 3.11 or newer and its venv module, on glibc.
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
WORKDIR /build
COPY requirements.lock ./
RUN python3 -m venv /opt/liverl-tui && /opt/liverl-tui/bin/pip install -q --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY backend backend
COPY liverl_tui liverl_tui
COPY share share
RUN /opt/liverl-tui/bin/pip install -q --no-cache-dir --no-deps --no-build-isolation .

FROM ${BASE}
COPY --from=build /opt/liverl-tui /opt/liverl-tui
# Runs live in the volume /state. A mounted folder must belong to this user, or say --user $(id -u):$(id -g).
RUN groupadd --gid 1000 liverl && useradd --uid 1000 --gid 1000 --create-home liverl && install -d -o liverl -g liverl /state
ENV PATH=/opt/liverl-tui/bin:$PATH XDG_STATE_HOME=/state XDG_CACHE_HOME=/state/cache LANG=C.UTF-8 TERM=xterm-256color
VOLUME /state
USER liverl
WORKDIR /state
ENTRYPOINT ["liverl-tui"]
CMD ["demo"]
