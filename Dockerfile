# forerun with its locked dependencies:  docker build -t forerun .  &&  docker run --rm forerun list models
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements/runtime.txt requirements/
RUN python -m venv /opt/forerun && /opt/forerun/bin/pip install --no-cache-dir --require-hashes -r requirements/runtime.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY public public
COPY search search
COPY simulator simulator
COPY spaces spaces
RUN /opt/forerun/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /opt/forerun /opt/forerun
RUN useradd --create-home forerun
USER forerun
WORKDIR /data
ENV PATH=/opt/forerun/bin:$PATH
ENTRYPOINT ["forerun"]
CMD ["--help"]
