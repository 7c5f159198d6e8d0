ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS builder
COPY requirements.txt /
COPY requirements /requirements
RUN python3 -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --disable-pip-version-check -r /requirements.txt
# EXTRA="kubernetes otel s3" adds requirements/kubernetes.txt, requirements/otel.txt and requirements/s3.txt.
ARG EXTRA=
RUN if [ -n "$EXTRA" ]; then /venv/bin/pip install --no-cache-dir --disable-pip-version-check -r /requirements.txt \
 $(printf ' -r /requirements/%s.txt' $EXTRA); fi
# Containers install no packages, and pip is a tenth of the size that the image adds to its base. CPython uses the other
# backend of zstandard; this one has 12 MB.
RUN /venv/bin/python3 -m pip uninstall --yes --quiet --disable-pip-version-check pip \
 && rm /venv/lib/python3*/site-packages/zstandard/_cffi.*.so
WORKDIR /app
# .dockerignore selects the files of the image.
COPY . .
# A process that cannot write here would compile its modules at each start, which is a third of the start. A checkout
# under a strict umask would be unreadable for the user below.
RUN /venv/bin/python3 -m compileall -q . && chmod -R a+rX .

FROM ${PYTHON_IMAGE}
# Without REDIS_URL the server runs this redis-server, with its file in /data. /workspace is for the image as a sandbox.
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
# HOST_ID: the sandboxes in /data belong to a host, but every new container has another host name. Containers that share a
# Redis need different HOST_IDs, such as pod names. STOP_SANDBOXES: processes end with their container; the files remain.
# HOST: a network address needs a key. If none is set, the first start makes a key in /data/key.
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
# The start may first load a long file: boot/embedded.py waits 60 s for it. The probe ignores proxies of the environment.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "\
from urllib.request import ProxyHandler, build_opener; from settings.config import Config; \
build_opener(ProxyHandler({})).open(f'http://127.0.0.1:{Config.from_env().http.port}/ready', timeout=4)"]
CMD ["gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
