ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS builder
WORKDIR /app
COPY requirements.txt .
RUN python3 -m venv /app/.venv \
 && /app/.venv/bin/pip install --no-cache-dir --disable-pip-version-check -r requirements.txt

FROM ${PYTHON_IMAGE}
# Without a REDIS_URL the server runs this one itself, with its file under /data.
RUN apt-get update \
 && apt-get install -y --no-install-recommends redis-server \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 agent \
 && useradd --uid 10001 --gid agent --no-create-home --home-dir /app agent \
 && install -d -o agent -g agent /data
WORKDIR /app
COPY --from=builder /app/.venv .venv
COPY app.py config.py embedded.py gunicorn.conf.py wire.py ./
COPY assets assets
COPY blueprints blueprints
COPY schemas schemas
COPY store store
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOST=0.0.0.0 \
    PORT=8000 \
    DATA_DIR=/data
USER agent
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/ready', timeout=2)"]
CMD ["gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
