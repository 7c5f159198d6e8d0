ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS builder
COPY requirements.txt /
COPY requirements /requirements
RUN python3 -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --disable-pip-version-check -r /requirements.txt
# EXTRA="kubernetes otel s3": the packages of requirements/kubernetes.txt, requirements/otel.txt and requirements/s3.txt too.
ARG EXTRA=
RUN if [ -n "$EXTRA" ]; then /venv/bin/pip install --no-cache-dir --disable-pip-version-check -r /requirements.txt \
 $(printf ' -r /requirements/%s.txt' $EXTRA); fi
# Nothing is installed in a container, and pip would be a tenth of what the image adds to its base. CPython uses the other
# backend of zstandard: this one is 12 MB that are never loaded.
RUN /venv/bin/python3 -m pip uninstall --yes --quiet --disable-pip-version-check pip \
 && rm /venv/lib/python3*/site-packages/zstandard/_cffi.*.so
WORKDIR /app
# .dockerignore is the one list of the files that the image has.
COPY . .
# A process that may write nothing would compile what it loads at each start: a third of the time before it serves.
# A checkout under a strict umask would be unreadable for the user below.
RUN /venv/bin/python3 -m compileall -q . && chmod -R a+rX .

FROM ${PYTHON_IMAGE}
# Without a REDIS_URL the server runs this redis-server, with its file under /data. /workspace is for the image as a sandbox.
# Git clones, records moments and shows changes. None of this is in Perl, whose library would be half of what Git adds:
# `apt-get install --reinstall perl-modules-5.40 libperl5.40` brings it back.
RUN printf 'path-exclude=/usr/%s\n' 'share/perl/*' 'lib/*/perl/*' 'share/locale/*' 'share/doc/*' 'share/man/*' \
 'lib/git-core/git-imap-send' 'lib/git-core/git-daemon' 'lib/git-core/git-http-push' 'lib/git-core/git-http-backend' \
 '*/scalar' '*/git-shell' > /etc/dpkg/dpkg.cfg.d/git \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git redis-server \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /etc/dpkg/dpkg.cfg.d/git \
 && groupadd --gid 10001 agent \
 && useradd --uid 10001 --gid agent --no-create-home --home-dir /app agent \
 && install -d -o agent -g agent /data /workspace
COPY --from=builder /venv /venv
COPY --from=builder /app /app
WORKDIR /app
# HOST_ID: a container has another host name each time, and the sandboxes in /data are those of a host. Containers that share
# a Redis need a HOST_ID each, such as a pod's name. STOP_SANDBOXES: no process outlives its container; the files do.
# HOST: on a network a key is needed; where none is set, the first start makes one in /data/key.
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOST=0.0.0.0 \
    PORT=8000 \
    DATA_DIR=/data \
    HOST_ID=server \
    STOP_SANDBOXES=1
# By number: Kubernetes' runAsNonRoot does not resolve names.
USER 10001:10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# The start may load a long file first: boot/embedded.py waits 60 s for it. The probe ignores a proxy of the environment.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "\
from urllib.request import ProxyHandler, build_opener; from settings.config import Config; \
build_opener(ProxyHandler({})).open(f'http://127.0.0.1:{Config.from_env().http.port}/ready', timeout=4)"]
CMD ["gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
