# Retain with the clients of its servers. Settings and passwords come from the environment; none are in the image.
FROM python:3.12.12-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/retain \
    && /opt/retain/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
       '.[postgres,valkey,objects,metrics,server]'

FROM python:3.12.12-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin retain \
    && install --directory --owner=retain --mode=0700 /data /data/keys /state /backups
COPY --from=build /opt/retain /opt/retain
ENV PATH=/opt/retain/bin:$PATH RETAIN_HOME=/data PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER retain
VOLUME ["/data", "/data/keys", "/state", "/backups"]
# That the process answers, and nothing more: whether its servers do is what /readyz is for.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8422/healthz', timeout=4)"]
EXPOSE 8422
ENTRYPOINT ["retain"]
# Other machines are served only once there is a key: retain access create
CMD ["serve", "--host", "0.0.0.0"]
