# Holdfast with the clients of its servers. Settings and passwords come from the environment; none are in the image.
FROM python:3.12.12-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
       '.[postgres,valkey,objects,metrics,server,openai]'

FROM python:3.12.12-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin holdfast \
    && install --directory --owner=holdfast --mode=0700 /data /data/keys /state /backups
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH HOLDFAST_HOME=/data PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER holdfast
VOLUME ["/data", "/data/keys", "/state", "/backups"]
# That the process answers, and nothing more: whether its servers do is what /readyz is for.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8422/healthz', timeout=4)"]
EXPOSE 8422
ENTRYPOINT ["holdfast"]
# Other machines are served only once there is a key: holdfast access create
CMD ["serve", "--host", "0.0.0.0"]
