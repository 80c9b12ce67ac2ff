# Retain with the clients of its servers. Settings and passwords come from the environment; none are in the image.
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/retain \
    && /opt/retain/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
       '.[postgres,valkey,objects,metrics,server]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin retain \
    && install --directory --owner=retain --mode=0700 /data
COPY --from=build /opt/retain /opt/retain
ENV PATH=/opt/retain/bin:$PATH RETAIN_HOME=/data PYTHONUNBUFFERED=1
USER retain
VOLUME /data
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["retain", "doctor"]
EXPOSE 8422
ENTRYPOINT ["retain"]
# Other machines are served only once there is a key: retain access create
CMD ["serve", "--host", "0.0.0.0"]
