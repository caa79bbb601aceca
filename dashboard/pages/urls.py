"""The addresses of the pages, and who answers when there is none."""

from __future__ import annotations

from allauth.account.views import LoginView, LogoutView, ReauthenticateView
from django.urls import URLPattern, path

from dashboard.pages import (
    choose,
    deadline,
    drills,
    evidence,
    files,
    first_run,
    gate,
    home,
    link,
    notices,
    password,
    people,
    problems,
    report,
    resume,
    retries,
    reviews,
    rules,
    run,
    runs,
    stop,
    tokens,
)
from dashboard.pages.shell import signed_in

urlpatterns: list[URLPattern] = [
    path("", home.home, name="home"),
    path("sign-in", LoginView.as_view(), name="account_login"),
    path("sign-in/again", signed_in(ReauthenticateView.as_view()), name="account_reauthenticate"),
    path("sign-in/link/<str:text>", link.link_page, name="sign-in-link"),
    path("sign-out", LogoutView.as_view(), name="account_logout"),
    path("theme", home.theme, name="theme"),
    path("help", home.help_page, name="help"),
    path("problems/<str:name>", problems.problem_page, name="problem"),
    path("drills/", drills.drills_page, name="drills"),
    path("drills/run", drills.run_page, name="run-drills"),
    path("drills/schedule", drills.schedule_page, name="schedule-drills"),
    path("drills/<str:name>/", drills.drill_page, name="drill"),
    path("first-run", first_run.first_run, name="first-run"),
    path("first-run/start", first_run.start_demo, name="start-demo"),
    path("password", password.password_page, name="password"),
    path("people", people.people_page, name="people"),
    path("people/<str:user_id>/role", people.role_page, name="role"),
    path("people/<str:user_id>/remove", people.remove_page, name="remove-person"),
    path("gate", gate.gate_page, name="gate"),
    path("gate/shut", gate.shut_page, name="shut-gate"),
    path("gate/release", gate.release_page, name="release-gate"),
    path("notices", notices.notices_page, name="notices"),
    path("notices/mail", notices.mail_page, name="notices-mail"),
    path("notices/log/<str:posting_id>/redeliver", notices.redeliver_page, name="redeliver"),
    path("notices/<str:endpoint_id>", notices.endpoint_page, name="endpoint"),
    path("notices/<str:endpoint_id>/remove", notices.remove_page, name="remove-endpoint"),
    path("rules", rules.rules_page, name="rules"),
    path("tokens", tokens.tokens_page, name="tokens"),
    path("tokens/<str:token_id>/revoke", tokens.revoke_page, name="revoke-token"),
    path("stop", choose.choose_run, name="choose-run"),
    path("reviews", reviews.reviews_page, name="reviews"),
    path("reviews/<str:review_id>", reviews.review_page, name="review"),
    path("reviews/<str:review_id>/approve", reviews.approve, name="approve-review"),
    path("reviews/<str:review_id>/reject", reviews.reject, name="reject-review"),
    path("reviews/<str:review_id>/revoke", reviews.revoke, name="revoke-approval"),
    path("runs/", runs.runs_page, name="runs"),
    path("runs/<str:run_id>/", run.run_page, name="run"),
    path("runs/<str:run_id>/stop", stop.stop_page, name="stop"),
    path("runs/<str:run_id>/stop/preview", stop.stop_preview, name="stop-preview"),
    path("runs/<str:run_id>/stop/deadline", deadline.deadline_page, name="deadline"),
    path("runs/<str:run_id>/resume", resume.resume_page, name="resume"),
    path("runs/<str:run_id>/retry", retries.retry_page, name="retry"),
    path("runs/<str:run_id>/evidence", evidence.evidence_page, name="evidence"),
    path("runs/<str:run_id>/files", files.files_page, name="files"),
    path("runs/<str:run_id>/report", report.report_page, name="report"),
    path("runs/<str:run_id>/report.json", report.report_json, name="report-json"),
]

handler403 = "dashboard.pages.errors.forbidden"
handler404 = "dashboard.pages.errors.not_found"
handler429 = "dashboard.pages.errors.too_many"
handler500 = "dashboard.pages.errors.server_error"
