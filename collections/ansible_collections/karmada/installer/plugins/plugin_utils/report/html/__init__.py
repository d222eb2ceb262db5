# SPDX-License-Identifier: Apache-2.0
"""Report as a page: a status of a KarmadaDeployment as one HTML file. No I/O but for reading the templates.

``view`` chooses and orders what of a status is shown, ``picture`` lays out the drawing, ``page`` renders both.
"""
