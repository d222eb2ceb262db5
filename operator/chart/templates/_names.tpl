{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "operator.name" -}}
{{- if eq .Release.Name "karmada-installer" }}karmada-installer{{ else }}karmada-installer-{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: karmada-installer-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: karmada-installer
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "operator.namespaces" -}}
{{- prepend .Values.namespaces .Release.Namespace | uniq | toJson }}
{{- end }}
