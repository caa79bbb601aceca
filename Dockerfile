# One image for web, worker and beat; the command decides.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    ALLSTOP_DATA=/var/lib/allstop ALLSTOP_KEYS=/var/lib/allstop/keys ALLSTOP_STATIC=/app/collected

RUN useradd --system --home-dir /var/lib/allstop --create-home --shell /usr/sbin/nologin allstop \
    && install -d -m 700 -o allstop -g allstop /var/lib/allstop/keys
WORKDIR /app

COPY requirements/run.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/run.txt

COPY manage.py LICENSE ./
COPY runs runs/
COPY effects effects/
COPY dashboard dashboard/
COPY templates templates/
COPY static static/
COPY docs/problems.md docs/
COPY docs/explanation docs/explanation/
RUN python manage.py collectstatic --no-input

USER allstop
EXPOSE 8000
CMD ["python", "manage.py", "up", "--no-demo", "--host", "0.0.0.0"]
