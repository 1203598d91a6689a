# The planner service: no torch, no root. Build from the repository's root:
#   docker build -f docker/service.Dockerfile -t meshwright .
FROM python:3.11-slim

RUN useradd --create-home --uid 10001 meshwright
WORKDIR /app
COPY pyproject.toml constraints.txt README.md ./
COPY cost_model cost_model
COPY planner planner
COPY trials trials
COPY api api
RUN pip install --no-cache-dir -c constraints.txt '.[postgres]'

RUN install -d -o meshwright /var/lib/meshwright
USER meshwright
ENV MESHWRIGHT_HOST=0.0.0.0 MESHWRIGHT_PORT=8321 MESHWRIGHT_VAR=/var/lib/meshwright
VOLUME /var/lib/meshwright
EXPOSE 8321
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8321/healthz', timeout=2)"]
CMD ["meshwright", "serve"]
